"""The operator's HTTP servers, on quart-trio and Hypercorn. Imported only if something is served."""
