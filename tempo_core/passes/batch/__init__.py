"""All points of a step at once, where no dependence forbids it, and what takes operations out of loops."""
