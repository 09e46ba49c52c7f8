"""Language models: Tempo and other systems in turn, each in a process of its own. `python -m benchmarks.llm --help`."""
