"""Handlers of users and everything about them: causes, filters, outcomes, and the storages of their progress."""
