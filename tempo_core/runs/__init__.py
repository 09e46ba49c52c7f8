"""What training runs of all libraries share: recipes in YAML, logs, signals, the lock of a run directory. It knows no model and no task."""
