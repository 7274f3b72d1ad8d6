"""Operators with planted defects, and correct ones: what exploring finds of them. See :mod:`tests.explore.__main__`."""
