"""Rows of the growth table that still grow faster than the best form by hand. A row that no longer does has to leave the list."""

# Gradients of prefixes and suffixes know squares of one difference, and no other product of differences.
_PRODUCTS = (
    "variance, product", "variance, contraction", "variance, expanded", "variance, weighted", "variance, halves", "skewness, power",
    "skewness, product", "skewness, of standard scores", "kurtosis, power", "kurtosis, squares", "covariance", "correlation",
    "correlation, contractions", "correlation, of standard scores",
)  # fmt: skip

NOT_YET: tuple[str, ...] = (
    # Its terms are as large as the square of the mean, and nearly cancel out: each of them summed alone would lose ten times as much.
    *(f"{read}, variance, expanded, forward" for read in ("prefix", "suffix")),
    *(f"{read}, {kind}, gradient" for read in ("prefix", "suffix") for kind in _PRODUCTS),
)
