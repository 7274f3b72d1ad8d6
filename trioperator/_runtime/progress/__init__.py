"""Progress of handlers: in memory, on the objects, and the last-handled configuration."""
