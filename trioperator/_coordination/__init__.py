"""Coordination with other operators: peering, leadership, and what they have in common, pauses."""
