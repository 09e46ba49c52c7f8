"""What all tests of random programs share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def verify_after_each_pass(verified_passes: None) -> None:
    """`tests/conftest.py` says why."""
