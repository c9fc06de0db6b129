"""A bucket of the user's, at `s3://BUCKET/PREFIX`, with the settings and credentials that other tools of AWS use, too.

Source: AWS SDKs and Tools Reference Guide, "Service-specific endpoints" (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL) and
"AWS Region" (AWS_REGION).
"""

from __future__ import annotations

import os

from mxr.configuration.file_urls import BUCKET_URL
from mxr.errors import NotARegistryError, UsageError

from .s3_settings import S3Settings, check_server_url


class UserBucket:
    """The objects under a prefix. Raises `UsageError` where boto3 is missing, or the environment is wrong."""

    def __init__(self, url: str, timeout: float) -> None:
        found = BUCKET_URL.fullmatch(url)
        if found is None:
            raise UsageError(f"{url[:200]!r} is no URL of a bucket.", hint="Give s3://BUCKET/PREFIX.")
        try:
            from .bucket import Bucket, BucketWords
        except ImportError:
            raise UsageError(
                f"{url} needs boto3, which is not installed.",
                hint="Install it (`pip install boto3`), or use the URL under which a web server has these files.",
            ) from None
        words = BucketWords(
            f"The S3 server of {url}",
            "the URL",
            "AWS_REGION",
            "AWS_ENDPOINT_URL_S3",
            "AWS_CA_BUNDLE",
            NotARegistryError,
        )
        environ = os.environ
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None
        try:
            endpoint = endpoint and check_server_url(endpoint)
        except ValueError as problem:
            raise UsageError(f"AWS_ENDPOINT_URL_S3 is no URL of a server: {problem}.", hint="Correct it.") from None
        settings = S3Settings(endpoint=endpoint, region=environ.get("AWS_REGION") or None, timeout=timeout)
        self.bucket = Bucket(found["bucket"], settings, words)
        self._prefix = found["prefix"].strip("/")

    def key(self, name: str) -> str:
        """Return the key of a file."""
        return f"{self._prefix}/{name}" if self._prefix else name

    def name(self, key: str) -> str:
        """Return the name of the file under a key."""
        return key.removeprefix(self.key(""))
