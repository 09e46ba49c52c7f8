"""What users write: recurrent tensors, their functions, inputs and recurrences. Each adds nodes to the graph."""

import tempo_core.frontend.autodiff.backward  # noqa: F401  # what computes `backward`
