"""Storage: objects, resource versions, the history of changes, and the data file."""
