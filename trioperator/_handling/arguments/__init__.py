"""Arguments of handlers."""
