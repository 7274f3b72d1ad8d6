"""The benchmark: one operator file under Kopf and under trioperator, on one API server, in one run. See README.md."""
