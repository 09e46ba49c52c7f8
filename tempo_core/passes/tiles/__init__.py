"""A part of a dimension at a time: tiles, and strips of chains of products."""
