"""Symbolic expressions of steps and bounds, conditions, domains, and dependences as isl relations."""

from tempo_core.symbolic import condition  # noqa: F401  (gives expressions their comparisons)
