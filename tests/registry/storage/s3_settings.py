"""The settings of S3 in an environment."""

from __future__ import annotations

from collections.abc import Mapping

from mxr.configuration.reading import read_service
from mxr.s3.s3_settings import S3Settings
from mxr_registry.config.settings import SCHEMA


def s3_settings(environ: Mapping[str, str]) -> S3Settings:
    """As a registry reads them."""
    found: S3Settings = read_service(SCHEMA, environ).table("s3")
    return found
