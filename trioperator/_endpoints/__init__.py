"""What is served about the operator: health, probes, metrics and the live view."""
