"""The interpreter: statement by statement, for stepping, NumPy, and shapes that vary."""
