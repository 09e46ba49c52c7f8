"""What statements and values are called in texts that people read: the user's names, lines and variables."""
