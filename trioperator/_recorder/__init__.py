"""Kubernetes Events: correlated, queued, and posted in the background."""
