"""Pages for browsers: what the API answers, rendered on the server."""
