"""What handlers are called with."""
