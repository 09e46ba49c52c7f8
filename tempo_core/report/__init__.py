"""What objects show of themselves. It neither decides nor runs."""
