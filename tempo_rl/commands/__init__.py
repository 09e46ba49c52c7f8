"""The commands of `tempo-rl`, and what they share. `tempo_rl.cli` has `train` and the console script."""
