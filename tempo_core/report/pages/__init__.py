"""Pages for notebooks and terminals, formulas, and files of pictures and traces."""
