"""The order in which chains of products are multiplied."""
