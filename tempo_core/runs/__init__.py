"""What training runs of all libraries share: recipes in YAML, logs, signals, run directories. It knows no model and no task."""
