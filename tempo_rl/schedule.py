"""Keys of recipes that are numbers, or schedules: numbers that change over the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tempo_core.runs.recipe import Count, NonNegative, Positive, Strict


class ScheduleRecipe(Strict):
    """A number that changes over the run: from `start` to `end` in a line or along half a cosine, or in steps.

    In steps, it is `values[k]` until `at[k]` environment steps are done, and the last value from then on.
    """

    schedule: Literal["linear", "cosine", "steps"]
    start: NonNegative | None = None
    end: NonNegative = 0.0
    values: list[NonNegative] = Field(default_factory=list)
    at: list[Count] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_kind(self) -> ScheduleRecipe:
        if self.schedule != "steps":
            if self.start is None or self.values or self.at:
                raise ValueError(
                    f"a {self.schedule} schedule has a start and an end: {{schedule: {self.schedule}, start: 3e-4, end: 0}}"
                )
        elif self.start is not None or len(self.values) != len(self.at) + 1 or sorted(set(self.at)) != self.at:
            raise ValueError(
                f"a schedule in steps has one value more than places, which rise, got values={self.values} and at={self.at}: "
                "{schedule: steps, values: [1e-3, 1e-4], at: [100000]}"
            )
        return self


def _tag(value: object) -> str:
    return "(schedule)" if isinstance(value, (Mapping, ScheduleRecipe)) else "(number)"


# A number, or a schedule. `tempo_core.runs.recipe` leaves the tags out of what it says of wrong ones.
Rate = Annotated[Annotated[Positive, Tag("(number)")] | Annotated[ScheduleRecipe, Tag("(schedule)")], Discriminator(_tag)]
Weight = Annotated[Annotated[NonNegative, Tag("(number)")] | Annotated[ScheduleRecipe, Tag("(schedule)")], Discriminator(_tag)]
