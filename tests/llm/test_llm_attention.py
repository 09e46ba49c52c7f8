"""Attention patterns as index expressions."""

from __future__ import annotations

import pytest

from tempo_llm import Attention, PatternError


@pytest.mark.parametrize("name", ["causal", " full "])
def test_causal_reaches_every_token_so_far(name: str) -> None:
    attention = Attention.parse(name)
    assert [[k for part in attention.reach(t, 9) for k in range(9)[part]] for t in (0, 3)] == [[0], [0, 1, 2, 3]]


@pytest.mark.parametrize("name", ["window", "", "causal=3"])
def test_an_unknown_pattern_is_an_error_that_names_the_known_ones(name: str) -> None:
    with pytest.raises(PatternError, match=f"unknown attention pattern '{name}'; known are causal, full"):
        Attention.parse(name)
