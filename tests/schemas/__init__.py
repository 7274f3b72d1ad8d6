"""Takes the schemas of the built-in kinds from a real API server, for the embedded one: see README.md."""
