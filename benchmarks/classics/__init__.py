"""Classical programs, each in Tempo's language and by hand in JAX: `python -m benchmarks.classics` compares their speed."""
