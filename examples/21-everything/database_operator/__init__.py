"""An operator of databases: see README.md for which feature is where."""
