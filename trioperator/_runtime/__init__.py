"""The tasks of an operator: watch events become reconciles of objects, and reconciles become patches."""
