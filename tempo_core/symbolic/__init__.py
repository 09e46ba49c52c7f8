"""Symbolic expressions of steps and bounds, conditions, domains, and dependences as isl relations."""
