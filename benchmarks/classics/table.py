"""The classical programs of all families."""

from __future__ import annotations

import importlib

from benchmarks.classics.classic import Classic

FAMILIES = (
    "hidden_markov",
    "alignment",
    "filters",
    "stencils",
    "linear_algebra",
    "recurrent_networks",
    "wavenet",
    "state_space",
    "decaying_states",
    "returns",
    "meta",
    "search",
    "statistics",
    "convergence",
    "writes",
    "inner_ends",
    "lengths",
    "unrolled",
    "grids",
    "small_loops",
    "libraries",
    "earlier",
    "intervals",
    "whole_arrays",
    "rings",
    "whole_past",
)


def load() -> dict[str, Classic]:
    """All classics by name."""
    each = [classic for family in FAMILIES for classic in importlib.import_module(f"benchmarks.classics.{family}").CLASSICS]
    names = [classic.name for classic in each]
    if len(set(names)) < len(names):
        raise ValueError(f"two classics have one name: {sorted(name for name in names if names.count(name) > 1)}")
    return dict(zip(names, each, strict=True))
