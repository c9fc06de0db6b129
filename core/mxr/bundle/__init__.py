"""Bundles: artifacts in one OCI image layout, for hosts without a network."""
