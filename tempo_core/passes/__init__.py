"""Rewrites of the graph, in the order of `pipeline.py`. Each folder is one kind of work."""
