"""The S3 client: the few requests on a bucket that mxr needs, with errors translated into mxr errors.

The only module that imports boto3. It avoids features in which S3 servers differ: no conditional PUT, no checksum other
than the sha256 in the payload signature, no checksum in a response. docs/decisions/0007 gives the reasons.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3  # type: ignore[import-untyped]
import urllib3
from botocore import exceptions as boto  # type: ignore[import-untyped]
from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.credentials import RefreshableCredentials  # type: ignore[import-untyped]

from mxr.errors import DiskFullError, MxrError, TemporaryError, UsageError
from mxr.util.hashing import Data

from .s3_settings import S3Settings

ATTEMPTS = 3
"""Attempts of one request, including the first. All of them together take less time than a client waits for a reply."""

OUTAGE_PAUSE = 5.0
"""Seconds without requests to a server that did not answer at all; waiting requests would pile up otherwise."""

CONNECTIONS = 64

BYTES = "application/octet-stream"

RENEW = 30
"""Seconds after which a file of credentials is read again."""

NAMED = "mxr-named-payload"
"""Our name for the signature of `NamedPayloadAuth` among those of botocore."""

ABSENT = {"404", "NoSuchKey", "NotFound"}
OUTSIDE = {"416", "InvalidRange"}
FULL = {"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}

REFUSALS = {
    "NoSuchBucket": ("the bucket does not exist", "Create the bucket, or correct {url}."),
    "InvalidBucketName": ("the bucket name is invalid", "Correct {url}."),
    "InvalidAccessKeyId": ("the access key is unknown", "Check AWS_ACCESS_KEY_ID or AWS_PROFILE."),
    "SignatureDoesNotMatch": (
        "the signature is wrong",
        "Check AWS_SECRET_ACCESS_KEY, and that no proxy in front of the server changes the Host header.",
    ),
    "AccessDenied": (
        "access is denied",
        "Allow the access key to list the bucket and its uploads, and to get, put and delete objects.",
    ),
    "AuthorizationHeaderMalformed": ("the region is wrong", "Set {region}."),
    "PermanentRedirect": ("the bucket is in another region", "Set {region} or {endpoint}."),
    "RequestTimeTooSkewed": ("the clocks differ", "Set the clock of this machine."),
    "403": ("access is denied", "Check the credentials and their permissions."),
}
"""Error codes that an administrator has to resolve, with reason and hint.

Source: Amazon S3 API Reference, Error responses, list of error codes.
"""


@dataclass(frozen=True, slots=True)
class BucketWords:
    """What errors call the bucket, and the settings that say where it is. `refused`: the error for what they cause."""

    what: str = "The registry's S3 store"
    url: str = "MXR_STORE_URL"
    region: str = "MXR_S3_REGION"
    endpoint: str = "MXR_S3_ENDPOINT"
    ca_file: str = "MXR_S3_CA_FILE"
    refused: type[MxrError] = TemporaryError


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """Identifies the content of an object: the entity tag and the size in bytes."""

    tag: str
    size: int


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One entry of a listing. `modified`: seconds since 1970."""

    key: str
    size: int
    modified: float


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


class NamedBytes(io.BytesIO):
    """The body of a request, with the sha256 that its signature covers."""

    def __init__(self, data: Data, sha256: str) -> None:
        super().__init__(data)
        self.sha256 = sha256


class NamedChunks:
    """The body of a request that arrives while it is sent, with the sha256 that its signature covers.

    `broken`: the error that ended the chunks.
    """

    def __init__(self, next_chunk: Callable[[], Data], sha256: str) -> None:
        self._next = next_chunk
        self.sha256 = sha256
        self.broken: MxrError | None = None

    def read(self, _: int = -1) -> Data:
        """Return the next chunk, of whatever size it has."""
        try:
            return self._next()
        except MxrError as problem:
            self.broken = problem
            raise


class NamedPayloadAuth(S3SigV4Auth):  # type: ignore[misc]
    """Signs the sha256 that a body names, instead of reading the body for it."""

    def payload(self, request: Any) -> Any:
        """Return the sha256 of the body."""
        return getattr(request.body, "sha256", None) or super().payload(request)


AUTH_TYPE_MAPS[NAMED] = NamedPayloadAuth


class Bucket:
    """One bucket. Every method is thread-safe and raises `TemporaryError` or `DiskFullError` if the request fails."""

    def __init__(self, name: str, settings: S3Settings, words: BucketWords | None = None) -> None:
        self.name = name
        self._settings = settings
        self._words = words or BucketWords()
        self._hint = f"Try again. If this repeats, check the S3 server, and {self._words.endpoint}."
        self._client = _connect(name, settings, settings.endpoint)
        self._streamer = _connect(name, settings, settings.endpoint, attempts=1)
        public = settings.public_endpoint
        self._signer = _connect(name, settings, public) if public and public != settings.endpoint else self._client
        self._write_checked = threading.Event()
        self._paused_until = 0.0

    def check_access(self, key: str, *, once: bool = False) -> None:
        """Check that the bucket can be listed, and once per process that `key` can be written.

        `once`: without a second attempt, which a probe has no time for. Also raises `UsageError`.
        """
        client = self._streamer if once else self._client
        with self.translate_errors(starting=True):
            client.list_objects_v2(Bucket=self.name, Prefix=key, MaxKeys=1)
            if not self._write_checked.is_set():
                client.put_object(Bucket=self.name, Key=key, Body=b"mxr\n")
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

    def put(self, key: str, data: Data, sha256: str, **headers: str) -> str:
        """Write an object, replacing any other under this key, and return its entity tag.

        `sha256`: of the data. The server refuses other bytes. `headers`: arguments of `put_object`, as `CacheControl`.
        """
        with self._request():
            found = self._put(self._client, key, NamedBytes(data, sha256), len(data), **headers)
        return str(found["ETag"])

    def put_chunks(self, key: str, next_chunk: Callable[[], Data], size: int, sha256: str, **headers: str) -> str:
        """Write an object as `put` does, from chunks that `next_chunk` returns; an empty one ends them.

        It is sent once: the chunks cannot be repeated. An `MxrError` of `next_chunk` breaks the request off.
        """
        body = NamedChunks(next_chunk, sha256)
        with self._request(sends=body):
            found = self._put(self._streamer, key, body, size, **headers)
        return str(found["ETag"])

    def _put(self, client: Any, key: str, body: NamedBytes | NamedChunks, size: int, **headers: str) -> Any:
        headers = {"ContentType": BYTES, **headers}
        return client.put_object(Bucket=self.name, Key=key, Body=body, ContentLength=size, **headers)

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
    def _request(self, sends: NamedChunks | None = None) -> Iterator[None]:
        """Context of every request: translates errors, and sends none during the pause after an outage.

        `sends`: what the request sends while it arrives. If that breaks off, its error is raised, and is no outage.
        """
        if time.monotonic() < self._paused_until:
            raise TemporaryError(f"{self._words.what} did not answer a moment ago.", hint=self._hint)
        with self.translate_errors():
            try:
                yield
            except (boto.HTTPClientError, boto.ConnectionError):
                if sends is not None and sends.broken is not None:
                    raise sends.broken from None
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
            kind = UsageError if starting else self._words.refused
            hint = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source of AWS credentials."
            raise kind(f"No credentials for S3: {problem}", hint=hint) from problem
        except (boto.ReadTimeoutError, boto.ConnectTimeoutError) as problem:
            raise self._timed_out() from problem
        except boto.SSLError as problem:
            kind = UsageError if starting else self._words.refused
            hint = f"Set {self._words.ca_file} to the certificate of its authority."
            raise kind(f"{self._words.what}: its certificate is not trusted.", hint=hint) from problem
        except (boto.BotoCoreError, boto3.exceptions.Boto3Error, urllib3.exceptions.HTTPError, OSError) as problem:
            if isinstance(problem, urllib3.exceptions.TimeoutError):
                raise self._timed_out() from problem
            raise TemporaryError(
                f"{self._words.what} is unreachable, or closed the connection ({type(problem).__name__}).",
                hint=self._hint,
            ) from problem

    def _timed_out(self) -> TemporaryError:
        message = f"{self._words.what} did not answer within {self._settings.timeout:g} seconds."
        return TemporaryError(message, hint=self._hint)

    def _refused(self, problem: boto.ClientError, starting: bool) -> MxrError:
        code = _code(problem)
        if code in FULL:
            return DiskFullError(f"{self._words.what} is full.")
        if code in REFUSALS:
            why, hint = REFUSALS[code]
            kind = UsageError if starting else self._words.refused
            return kind(
                f"{self._words.what} rejected a request for bucket {self.name}: {why} ({code}).",
                hint=hint.format(**asdict(self._words)),
            )
        status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return TemporaryError(f"{self._words.what} answered {status} {code}.", hint=self._hint)


def _style(name: str, settings: S3Settings, endpoint: str | None) -> str:
    """The addressing style of a bucket.

    In its automatic mode boto3 signs AWS URLs without a region, and AWS redirects these to the right one. Virtual style
    does not work for a name with dots: the server's certificate does not cover it.
    """
    if endpoint is not None or settings.addressing != "auto":
        return settings.addressing
    return "path" if "." in name else "virtual"


def _connect(name: str, settings: S3Settings, endpoint: str | None, attempts: int = ATTEMPTS) -> Any:
    session = boto3.session.Session()
    config = Config(
        signature_version="s3v4",
        connect_timeout=min(5.0, settings.timeout),
        # An upload cannot be repeated, and is answered when the server has written all of it.
        read_timeout=settings.timeout * (ATTEMPTS if attempts == 1 else 1),
        retries={"total_max_attempts": attempts, "mode": "standard"},
        max_pool_connections=CONNECTIONS,
        # Other servers reject or ignore these extensions of AWS.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # The signature covers the sha256 of each body: every server rejects bytes that changed in transit.
        s3={"addressing_style": _style(name, settings, endpoint), "payload_signing_enabled": True},
    )
    try:
        _renew_credentials(session)
        client = session.client(
            "s3",
            endpoint_url=endpoint,
            region_name=settings.region or session.region_name or "us-east-1",
            verify=str(settings.ca_file) if settings.ca_file else None,
            config=config,
        )
        client.meta.events.register_first("choose-signer.s3.PutObject", lambda **_: NAMED)
        return client
    except (boto.BotoCoreError, ValueError) as problem:
        raise UsageError(
            f"Cannot set up the S3 client: {problem}.", hint="Check the settings of S3, and the AWS configuration."
        ) from problem


def _renew_credentials(session: Any) -> None:
    """Read a file of credentials (AWS_SHARED_CREDENTIALS_FILE) again every `RENEW` seconds: a Secret can be replaced.

    Those of a role are renewed by boto3 itself, and those of variables cannot change.
    """
    found = session.get_credentials()
    if found is None or found.method != "shared-credentials-file":
        return
    last = found.get_frozen_credentials()

    def read() -> dict[str, Any]:
        nonlocal last
        with contextlib.suppress(boto.BotoCoreError):
            now = boto3.session.Session().get_credentials()
            last = now.get_frozen_credentials() if now is not None else last
        again = datetime.now(timezone.utc) + timedelta(seconds=2 * RENEW)
        return {
            "access_key": last.access_key,
            "secret_key": last.secret_key,
            "token": last.token,
            "expiry_time": again.isoformat(),
        }

    renewing = RefreshableCredentials.create_from_metadata(
        read(), read, "shared-credentials-file", advisory_timeout=RENEW, mandatory_timeout=0
    )
    session._session._credentials = renewing


def _code(problem: boto.ClientError) -> str:
    return str(problem.response.get("Error", {}).get("Code", ""))
