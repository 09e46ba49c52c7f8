"""The graph between the user's program and the schedule: nodes, edges, ops, and what is asked of them."""
