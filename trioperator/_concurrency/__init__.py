"""Tools for Trio that know nothing of Kubernetes: clocks, threads, backoff, fair queues."""
