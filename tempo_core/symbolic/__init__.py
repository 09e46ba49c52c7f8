"""Symbolic expressions of steps and bounds, conditions, domains, and dependences as isl relations."""

import tempo_core.symbolic.condition  # noqa: F401  (comparisons of expressions make conditions)
