"""Whole programs as they were written: what is made of them before they are compiled."""
