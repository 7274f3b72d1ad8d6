"""Writes: create, update, patch, apply, scale and delete, and what the control plane does right after them."""
