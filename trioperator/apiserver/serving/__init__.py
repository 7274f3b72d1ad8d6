"""Ways to reach the API: HTTP over TCP or TLS, an in-memory httpx transport, kubeconfig files, certificates."""
