"""Test suites that others wrote, on the embedded API server and, beside it, on a real one."""
