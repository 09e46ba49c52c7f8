"""Training of language models: `tempo-llm train RECIPE`."""
