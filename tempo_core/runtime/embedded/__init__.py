"""A program as a pure function of JAX."""
