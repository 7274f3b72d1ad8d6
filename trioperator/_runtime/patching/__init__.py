"""Patching of objects: what handlers contribute, in as few requests as the API allows."""
