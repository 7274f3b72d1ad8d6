"""Daemons and timers: which of them run for which objects, and how they are stopped."""
