"""Faults that runs of tempo-rl must survive, damaged models of which tempo-llm must say what is wrong, and requests that a server must stand."""
