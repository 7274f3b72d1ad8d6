"""Admission and conversion webhooks: which of them apply, how they are called, and what their answers mean."""
