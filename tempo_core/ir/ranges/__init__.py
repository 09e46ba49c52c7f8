"""What a range of points is made of, and what is computed once for all ranges of a step: for passes and gradients."""
