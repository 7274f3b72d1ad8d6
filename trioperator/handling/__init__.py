"""What users' functions mean: handlers, causes, filters, outcomes, and what is remembered of them."""
