"""Counts and traces of an operator, if these are on. Not imported otherwise."""
