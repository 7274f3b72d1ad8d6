"""What an operator serves by HTTP, on quart-trio and Hypercorn. It is imported only where something is to be served."""
