"""The operator's HTTP servers, on Hypercorn. Imported only if something is served."""
