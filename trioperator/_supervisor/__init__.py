"""One operator's life: its options, its task tree, its signals and its shutdown."""
