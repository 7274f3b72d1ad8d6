"""Reads: get, list, watch, tables, discovery and OpenAPI documents."""
