"""The table of prices: every threshold is a row, and names who uses it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tempo_core import prices

CORE = Path(prices.__file__).parent
SOURCE = inspect.getsource(prices)
NUMBERS = {name: value for name, value in vars(prices).items() if name.isupper() and isinstance(value, (int, float))}


def test_every_number_is_a_row() -> None:
    assert len(NUMBERS) == len(prices.ROWS) > 40
    assert [row.value for row in prices.ROWS] == list(NUMBERS.values())


def test_rows_are_in_the_order_of_the_rooms() -> None:
    rooms = re.findall(r"^# -- ([a-z_/]+) -+$", SOURCE, re.MULTILINE)
    passes = ["passes/ranges", "passes/batch", "passes/tiles", "passes/order", "passes/keep"]
    assert rooms == [*passes, "schedule", "runtime/lower", "runtime/staged", "backends", "questions"]
    assert all((CORE / room).is_dir() for room in rooms[:-1])


def test_users_use_their_rows() -> None:
    others = {path: path.read_text(encoding="utf-8") for path in CORE.rglob("*.py") if path.name != "prices.py"}
    for name, row in zip(NUMBERS, prices.ROWS, strict=True):
        for user in row.users:
            if user.endswith(".py"):
                assert re.search(rf"\b{name}\b", others[CORE / user]), f"{user} does not use {name}"
                continue
            code = inspect.getsource(getattr(prices, user))
            inner = "".join(inspect.getsource(getattr(prices, called)) for called in re.findall(r"\b(_\w+)\(", code))
            assert re.search(rf"\b{name}\b", code + inner), f"{user} does not use {name}"
            assert any(re.search(rf"\b{user}\b", text) for text in others.values()), f"nobody asks {user}"


def test_rows_say_what_was_measured_for_which_devices() -> None:
    assert {row.gpu for row in prices.ROWS} == {prices.NOT_MEASURED}, "a value for GPUs: say so in docs/support.md"
    assert all(
        row.measured == prices.NOT_MEASURED or re.match(r"(one core|two cores|as above)", row.measured) for row in prices.ROWS
    )
    assert sum(row.measured != prices.NOT_MEASURED for row in prices.ROWS) > 20
