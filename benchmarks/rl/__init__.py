"""Training runs that are measured: each one a process that starts cold and reports after each iteration."""
