"""The HTTP API, version 1: each route parses, calls one service, and answers."""
