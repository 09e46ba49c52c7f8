"""Rows of the growth table that still grow faster than the best form by hand. A row that no longer does has to leave the list."""

NOT_YET = (
    "grid, forward",
)
