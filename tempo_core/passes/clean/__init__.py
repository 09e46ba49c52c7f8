"""The same values with fewer operations: rules, common subexpressions, dead code, smaller domains."""
