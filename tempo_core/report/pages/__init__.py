"""Pages for notebooks and terminals, and formulas."""
