"""Lives of operators in which everything may go wrong, drawn by seeds: ``python -m tests.lives --seed 1``."""
