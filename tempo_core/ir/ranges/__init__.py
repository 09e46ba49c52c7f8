"""What a range of points is made of: its elements, blocks and windows, and the terms of sums over it."""
