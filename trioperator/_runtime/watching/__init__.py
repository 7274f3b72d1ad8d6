"""Watches: of which kinds, where, and for which handlers."""
