"""Random attacks, repeatable by their seed: ``python -m tests.fuzz apiserver --seconds 600 --seed 1``."""
