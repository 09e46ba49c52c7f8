"""Pages for notebooks and terminals, formulas, and pictures."""
