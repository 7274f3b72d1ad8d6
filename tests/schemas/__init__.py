"""Extraction of the schemas of built-in kinds from a real API server: see README.md."""
