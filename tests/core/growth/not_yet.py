"""Rows of the growth table that still grow faster than the best form by hand. A row that no longer does has to leave the list."""

NOT_YET = (
    "prefix, argmax-weighted, forward",
    "prefix, argmax-weighted, gradient",
    "suffix, argmax-weighted, forward",
    "suffix, argmax-weighted, gradient",
    "prefix before, sum, gradient",
    "prefix before, max, gradient",
    "prefix before, logsumexp, gradient",
    "prefix from the end, max, gradient",
    "prefix from the end, logsumexp, gradient",
    "prefix, matmul, forward",
    "prefix, matmul, gradient",
    "suffix, matmul, forward",
    "suffix, matmul, gradient",
    "its own prefix, max, gradient of the input",
    "its own prefix, max, gradient of a parameter",
    "attention, forward",
    "attention, gradient",
    "grid, forward",
)
