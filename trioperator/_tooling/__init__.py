"""What commands compute: checks, manifests, new projects, permissions."""
