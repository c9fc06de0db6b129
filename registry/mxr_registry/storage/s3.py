"""The S3 client: the few requests on a bucket that a store needs, with errors translated into mxr errors.

The only module that imports boto3. It avoids features in which S3 servers differ: no conditional PUT, no checksum other
than the sha256 in the payload signature, no checksum in a response. docs/decisions/0007 gives the reasons.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3  # type: ignore[import-untyped]
import urllib3
from botocore import exceptions as boto  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from mxr.errors import DiskFullError, MxrError, TemporaryError, UsageError

from .s3_settings import S3Settings

ATTEMPTS = 3
"""Attempts of one request, including the first. All of them together take less time than a client waits for a reply."""

OUTAGE_PAUSE = 5.0
"""Seconds without requests to a server that did not answer at all; waiting requests would pile up otherwise."""

CONNECTIONS = 64

ABSENT = {"404", "NoSuchKey", "NotFound"}
GONE_UPLOAD = {"404", "NoSuchUpload"}
OUTSIDE = {"416", "InvalidRange"}
FULL = {"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}

REFUSALS = {
    "NoSuchBucket": ("the bucket does not exist", "Create the bucket, or correct MXR_STORE_URL."),
    "InvalidBucketName": ("the bucket name is invalid", "Correct MXR_STORE_URL."),
    "InvalidAccessKeyId": ("the access key is unknown", "Check AWS_ACCESS_KEY_ID or AWS_PROFILE."),
    "SignatureDoesNotMatch": (
        "the signature is wrong",
        "Check AWS_SECRET_ACCESS_KEY, and that no proxy in front of the server changes the Host header.",
    ),
    "AccessDenied": (
        "access is denied",
        "Allow the access key to list the bucket and its uploads, and to get, put and delete objects.",
    ),
    "AuthorizationHeaderMalformed": ("the region is wrong", "Set MXR_S3_REGION."),
    "PermanentRedirect": ("the bucket is in another region", "Set MXR_S3_REGION or MXR_S3_ENDPOINT."),
    "RequestTimeTooSkewed": ("the clocks differ", "Set the clock of this machine."),
    "403": ("access is denied", "Check the credentials and their permissions."),
}
"""Error codes that an administrator has to resolve, with reason and hint.

Source: Amazon S3 API Reference, Error responses, list of error codes.
"""


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """Identifies the content of an object: the entity tag and the size in bytes."""

    tag: str
    size: int


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One entry of a listing. `upload` is the id of an unfinished multipart upload. `modified`: seconds since 1970."""

    key: str
    size: int
    modified: float
    upload: str | None = None


class ObjectBody:
    """The body of a response. `version` is that of the whole object, even if only a range was requested."""

    def __init__(self, reply: Any, bucket: Bucket) -> None:
        whole = reply.get("ContentRange", "").rpartition("/")[2]
        self.version = ObjectVersion(reply["ETag"], int(whole or reply["ContentLength"]))
        self._body = reply["Body"]
        self._bucket = bucket

    def read(self, limit: int) -> bytes:
        """Return the next bytes, at most `limit`; empty at the end.

        Raises `TemporaryError` if the connection breaks.
        """
        with self._bucket.translate_errors():
            data: bytes = self._body.read(limit)
            return data

    def close(self) -> None:
        """Return the connection to the pool."""
        self._body.close()


class Bucket:
    """One bucket. Every method is thread-safe and raises `TemporaryError` or `DiskFullError` if the request fails."""

    def __init__(self, name: str, settings: S3Settings) -> None:
        self.name = name
        self._settings = settings
        self._client = _connect(name, settings, settings.endpoint)
        public = settings.public_endpoint
        self._signer = _connect(name, settings, public) if public and public != settings.endpoint else self._client
        self._write_checked = threading.Event()
        self._paused_until = 0.0

    def check_access(self, key: str) -> None:
        """Check that the bucket can be listed, and once per process that `key` can be written.

        Also raises `UsageError`.
        """
        with self.translate_errors(starting=True):
            self._client.list_objects_v2(Bucket=self.name, Prefix=key, MaxKeys=1)
            if not self._write_checked.is_set():
                self._client.put_object(Bucket=self.name, Key=key, Body=b"mxr\n")
                self._write_checked.set()

    def stat(self, key: str) -> ObjectVersion | None:
        """Return the version of the object under a key, or None."""
        with self._request():
            found = self._unless(ABSENT, self._client.head_object, Key=key)
        return found and ObjectVersion(found["ETag"], found["ContentLength"])

    def get(self, key: str, offset: int = 0, length: int | None = None) -> ObjectBody | None:
        """Get an object from `offset`: `length` bytes (at least one), or all of the rest.

        Returns None if there is no such object, or no byte in the range.
        """
        part = {}
        if offset or length is not None:
            part["Range"] = f"bytes={offset}-{'' if length is None else offset + length - 1}"
        with self._request():
            found = self._unless(ABSENT | OUTSIDE, self._client.get_object, Key=key, **part)
        return found and ObjectBody(found, self)

    def put(self, key: str, data: bytes | bytearray) -> str:
        """Write an object, replacing any other under this key, and return its entity tag."""
        with self._request():
            found = self._client.put_object(Bucket=self.name, Key=key, Body=data, ContentType=BYTES)
        return str(found["ETag"])

    def begin(self, key: str) -> str:
        """Start a multipart upload and return its id."""
        with self._request():
            found = self._client.create_multipart_upload(Bucket=self.name, Key=key, ContentType=BYTES)
        return str(found["UploadId"])

    def part(self, key: str, upload: str, number: int, data: bytes | bytearray) -> str:
        """Send one part, numbered from 1, and return its entity tag."""
        with self._request():
            found = self._client.upload_part(Bucket=self.name, Key=key, UploadId=upload, PartNumber=number, Body=data)
        return str(found["ETag"])

    def complete(self, key: str, upload: str, tags: list[str]) -> str | None:
        """Complete a multipart upload and return the entity tag of the object.

        Returns None if the upload does not exist or no longer exists.
        """
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        verb = self._client.complete_multipart_upload
        with self._request():
            found = self._unless(GONE_UPLOAD, verb, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
        return found and str(found["ETag"])

    def abort(self, key: str, upload: str) -> None:
        """Abort a multipart upload. Does nothing if it does not exist."""
        with self._request():
            self._unless(GONE_UPLOAD, self._client.abort_multipart_upload, Key=key, UploadId=upload)

    def copy(self, key: str, to: str) -> None:
        """Copy an object within the bucket, on the server."""
        with self._request():
            self._client.copy({"Bucket": self.name, "Key": key}, self.name, to)

    def delete(self, key: str) -> None:
        """Delete an object. Does nothing if it does not exist."""
        with self._request():
            self._unless(ABSENT, self._client.delete_object, Key=key)

    def walk(self, prefix: str) -> Iterator[ListedObject]:
        """Yield all objects under a prefix."""
        for row in self._pages("list_objects_v2", "Contents", prefix):
            yield ListedObject(row["Key"], row["Size"], row["LastModified"].timestamp())

    def uploads(self, prefix: str) -> Iterator[ListedObject]:
        """Yield all unfinished multipart uploads under a prefix."""
        for row in self._pages("list_multipart_uploads", "Uploads", prefix):
            yield ListedObject(row["Key"], 0, row["Initiated"].timestamp(), row["UploadId"])

    def sign(self, key: str, seconds: int) -> str:
        """Return a signed URL from which anyone can download the object for this time."""
        with self.translate_errors():
            url = self._signer.generate_presigned_url(
                "get_object", Params={"Bucket": self.name, "Key": key}, ExpiresIn=seconds
            )
        return str(url)

    def _pages(self, verb: str, rows: str, prefix: str) -> Iterator[Any]:
        with self._request():
            for page in self._client.get_paginator(verb).paginate(Bucket=self.name, Prefix=prefix):
                yield from page.get(rows, ())

    def _unless(self, codes: set[str], verb: Any, **arguments: Any) -> Any:
        """The response of a request, or None if it fails with one of these error codes."""
        try:
            return verb(Bucket=self.name, **arguments)
        except boto.ClientError as problem:
            if _code(problem) in codes:
                return None
            raise

    @contextmanager
    def _request(self) -> Iterator[None]:
        """Context of every request: translates errors, and sends none during the pause after an outage."""
        if time.monotonic() < self._paused_until:
            raise TemporaryError("The registry's S3 store did not answer a moment ago.", hint=HINT)
        with self.translate_errors():
            try:
                yield
            except (boto.HTTPClientError, boto.ConnectionError):
                self._paused_until = time.monotonic() + OUTAGE_PAUSE
                raise

    @contextmanager
    def translate_errors(self, starting: bool = False) -> Iterator[None]:
        """Translate errors of the server.

        `starting`: configuration errors become `UsageError` instead of `TemporaryError`.
        """
        try:
            yield
        except boto.ClientError as problem:
            raise self._refused(problem, starting) from problem
        except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError) as problem:
            kind = UsageError if starting else TemporaryError
            hint = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source of AWS credentials."
            raise kind(f"No credentials for S3: {problem}", hint=hint) from problem
        except (boto.ReadTimeoutError, boto.ConnectTimeoutError) as problem:
            raise self._timed_out() from problem
        except boto.SSLError as problem:
            kind = UsageError if starting else TemporaryError
            hint = "Set MXR_S3_CA_FILE to the certificate of its authority."
            raise kind("The certificate of the S3 store is not trusted.", hint=hint) from problem
        except (boto.BotoCoreError, boto3.exceptions.Boto3Error, urllib3.exceptions.HTTPError, OSError) as problem:
            if isinstance(problem, urllib3.exceptions.TimeoutError):
                raise self._timed_out() from problem
            raise TemporaryError(
                f"The registry's S3 store is unreachable, or closed the connection ({type(problem).__name__}).",
                hint=HINT,
            ) from problem

    def _timed_out(self) -> TemporaryError:
        message = f"The registry's S3 store did not answer within {self._settings.timeout:g} seconds."
        return TemporaryError(message, hint=HINT)

    def _refused(self, problem: boto.ClientError, starting: bool) -> MxrError:
        code = _code(problem)
        if code in FULL:
            return DiskFullError("The registry's S3 store is full.")
        if code in REFUSALS:
            why, hint = REFUSALS[code]
            kind = UsageError if starting else TemporaryError
            return kind(f"The S3 store rejected a request for bucket {self.name}: {why} ({code}).", hint=hint)
        status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return TemporaryError(f"The registry's S3 store answered {status} {code}.", hint=HINT)


BYTES = "application/octet-stream"
HINT = "Try again. If this repeats, check the S3 server, and MXR_S3_ENDPOINT of the registry."


def _style(name: str, settings: S3Settings, endpoint: str | None) -> str:
    """The addressing style of a bucket.

    In its automatic mode boto3 signs AWS URLs without a region, and AWS redirects these to the right one. Virtual style
    does not work for a name with dots: the server's certificate does not cover it.
    """
    if endpoint is not None or settings.style != "auto":
        return settings.style
    return "path" if "." in name else "virtual"


def _connect(name: str, settings: S3Settings, endpoint: str | None) -> Any:
    session = boto3.session.Session()
    config = Config(
        signature_version="s3v4",
        connect_timeout=min(5.0, settings.timeout),
        read_timeout=settings.timeout,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        max_pool_connections=CONNECTIONS,
        # Other servers reject or ignore these extensions of AWS.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # The signature covers the sha256 of each body: every server rejects bytes that changed in transit.
        s3={"addressing_style": _style(name, settings, endpoint), "payload_signing_enabled": True},
    )
    try:
        return session.client(
            "s3",
            endpoint_url=endpoint,
            region_name=settings.region or session.region_name or "us-east-1",
            verify=settings.ca_file,
            config=config,
        )
    except (boto.BotoCoreError, ValueError) as problem:
        raise UsageError(
            f"Cannot set up the S3 client: {problem}.", hint="Check MXR_S3_* and the AWS configuration."
        ) from problem


def _code(problem: boto.ClientError) -> str:
    return str(problem.response.get("Error", {}).get("Code", ""))
