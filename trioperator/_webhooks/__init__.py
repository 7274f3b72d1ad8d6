"""Admission and conversion webhooks: what is reviewed, and what the cluster has to know of it."""
