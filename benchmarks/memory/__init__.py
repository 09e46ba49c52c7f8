"""Memory: what was planned, by how much the process grew, and the time of a run. A file for each kind of work; each case is a process."""
