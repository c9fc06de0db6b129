"""The HTTP client of the registry: requests, transfers, redirects and the retry policy."""
