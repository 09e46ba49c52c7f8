"""Reductions of prefixes, suffixes and windows, and linear recurrences, in time linear in the step."""
