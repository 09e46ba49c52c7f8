"""What users write: recurrent tensors, their functions, inputs and recurrences. Each adds nodes to the graph."""
