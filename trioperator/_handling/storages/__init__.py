"""Where progress and the last-handled configuration are stored on objects."""
