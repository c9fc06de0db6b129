"""Compile jobs: submission, leases, completion, notification, workers."""
