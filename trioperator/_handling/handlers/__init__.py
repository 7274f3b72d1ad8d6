"""Declared handlers: what selects, orders and ends them."""
