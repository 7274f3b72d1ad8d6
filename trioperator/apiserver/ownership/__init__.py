"""Server-side apply: field sets, merging, and the entries of managedFields."""
