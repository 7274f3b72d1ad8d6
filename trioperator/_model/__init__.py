"""Frozen data and pure functions: no tasks, no network, no clock, no logging."""
