"""Mutation of the tables: does a test notice when a row is wrong, or gone? See `__main__.py`."""
