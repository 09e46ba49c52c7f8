"""The staged executor: launches of XLA programs, with the host's work between them."""
