"""Runs that stop, are saved and go on, in this process or another."""
