"""The methods of tensors, in classes by theme, of which `Tensor` is made. Functions of the same names are these methods."""
