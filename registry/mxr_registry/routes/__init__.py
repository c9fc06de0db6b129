"""The HTTP API, version 1: each route parses the request, calls one service function and sends one typed reply."""
