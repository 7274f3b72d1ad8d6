"""Talking to a cluster: the only package that does."""
