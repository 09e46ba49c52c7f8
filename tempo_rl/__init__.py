"""Reinforcement learning on recurrent tensors: environments, agents, recipes and the `tempo-rl` command."""
