"""Execution: calls of handlers, and what becomes of their results."""
