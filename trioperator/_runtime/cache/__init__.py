"""The cache: watch events become the newest states of objects, which the work queue is told of."""
