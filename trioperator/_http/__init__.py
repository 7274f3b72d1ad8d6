"""HTTP/1.1: connections of the client, their pool, listeners and servers."""
