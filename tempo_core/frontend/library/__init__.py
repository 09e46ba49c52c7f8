"""Linear algebra, Fourier transforms and complex numbers: what XLA and JAX compute, by one mechanism."""
