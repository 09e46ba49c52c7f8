"""A part of a program that needs no host, as one traceable function of its stores."""
