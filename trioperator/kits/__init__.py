"""Helpers for users' handlers; the framework itself uses none of them."""
