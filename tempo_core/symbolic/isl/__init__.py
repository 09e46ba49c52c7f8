"""Exact answers by isl: sets and relations, dependences reversed, numbers of points, and the way back to expressions."""
