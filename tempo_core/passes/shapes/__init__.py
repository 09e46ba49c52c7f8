"""Sizes that vary with a step or are known when a program runs: padded to the largest."""
