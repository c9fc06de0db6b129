"""Bundles of artifacts for hosts without a network, as OCI image layouts."""
