"""Compiled programs on disk, found by fingerprints of what went into them."""
