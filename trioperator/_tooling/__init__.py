"""Computations of the commands: checks, manifests, new projects, permissions."""
