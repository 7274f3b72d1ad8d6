"""Manifests of a deployment, from the handlers of an operator and options: objects, and the files that they are in."""
