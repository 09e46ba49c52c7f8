"""Reverse-mode differentiation: the walk across time, and its tables of rules."""
