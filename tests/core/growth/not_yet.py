"""Rows of the growth table that still grow faster than the best form by hand. A row that no longer does has to leave the list."""

NOT_YET: tuple[str, ...] = (
    # Each point takes one element of each padded vector of the later intervals: their other elements count.
    "splits of intervals, gradient",
    # Its terms are as large as the square of the mean, and nearly cancel out: each of them summed alone would lose ten times as much.
    *(f"{read}, variance, expanded, {way}" for read in ("prefix", "suffix") for way in ("forward", "gradient")),
)
