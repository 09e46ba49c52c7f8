"""Faults that runs of tempo-rl must survive, and damaged models of which tempo-llm must say what is wrong."""
