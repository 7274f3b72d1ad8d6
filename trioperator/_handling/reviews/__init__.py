"""Admission and conversion reviews: requests, responses, configurations."""
