"""Kernels: what each op computes, in JAX and in NumPy."""
