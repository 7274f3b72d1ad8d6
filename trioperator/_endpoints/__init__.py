"""Endpoints of the operator: health, probes, metrics and the live view."""
