"""Learning from rewards and from preferences: GRPO and DPO."""
