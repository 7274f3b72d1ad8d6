"""Helpers for handlers; the framework itself does not use them."""
