"""What is watched, where, and for which handlers."""
