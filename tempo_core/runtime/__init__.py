"""What runs a scheduled program, and what is known about it before."""
