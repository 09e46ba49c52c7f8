"""Which points are needed, which values a loop keeps or computes again, and what runs as one statement."""
