"""What users write: recurrent tensors, their functions, inputs and recurrences. Each adds nodes to the graph."""

# What computes the methods of tensors:
import tempo_core.frontend.autodiff.backward
import tempo_core.frontend.functions
import tempo_core.frontend.spatial  # noqa: F401
