"""A server in the form of OpenAI's interface: `tempo-llm serve`. Its parts need the extra `serve`: pip install 'tempo-dl[serve]'."""
