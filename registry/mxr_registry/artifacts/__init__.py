"""Artifacts, models and blobs: publishing, resolving, listing."""
