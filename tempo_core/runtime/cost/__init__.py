"""What a program costs in operations, bytes, memory and time, before it runs."""
