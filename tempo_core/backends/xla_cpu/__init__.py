"""What steers XLA's compiler for CPUs: operations computed together or apart, scans in loops and in blocks."""
