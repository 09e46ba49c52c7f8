"""`python -m tempo_rl` is `tempo-rl`."""

from tempo_rl.cli import main

main()
