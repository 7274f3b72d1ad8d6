"""The client of the Kubernetes API: the only package that talks to a cluster."""
