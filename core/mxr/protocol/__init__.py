"""The messages of HTTP API version 1, as frozen values that client, worker and registry share."""
