"""Calls of users' functions: in tasks or threads, with limits, and their outcomes."""
