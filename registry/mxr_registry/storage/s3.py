"""The door to S3: a bucket in the few requests that a store needs, and every trouble in mxr's words.

The only file that imports boto3. It asks for nothing that real servers differ in: no conditional PUT, no checksum but
the sha256 that signs a payload, no answer that tells a checksum. docs/decisions/0007 says why.
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

from mxr.errors import DiskFull, MxrError, Temporary, Usage

from .place import S3Place

TRIES = 3
"""Of one request, counting the first: with the time that one may take, less than a client waits for the registry."""

REST = 5.0
"""Seconds for which a server that did not answer at all is not asked again: those who wait would only pile up."""

CONNECTIONS = 64

ABSENT = {"404", "NoSuchKey", "NotFound"}
GONE_UPLOAD = {"404", "NoSuchUpload"}
OUTSIDE = {"416", "InvalidRange"}
FULL = {"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}

REFUSALS = {
    "NoSuchBucket": ("there is no such bucket", "Create the bucket, or correct MXR_STORE_URL."),
    "InvalidBucketName": ("that is no name of a bucket", "Correct MXR_STORE_URL."),
    "InvalidAccessKeyId": ("it does not know the access key", "Check AWS_ACCESS_KEY_ID or AWS_PROFILE."),
    "SignatureDoesNotMatch": (
        "the signature is wrong",
        "Check AWS_SECRET_ACCESS_KEY, and that no proxy before the server changes the Host header.",
    ),
    "AccessDenied": (
        "access is denied",
        "Allow its key to list the bucket and its uploads, and to get, put, delete objects.",
    ),
    "AuthorizationHeaderMalformed": ("the region is wrong", "Set MXR_S3_REGION."),
    "PermanentRedirect": ("the bucket is in another region", "Set MXR_S3_REGION or MXR_S3_ENDPOINT."),
    "RequestTimeTooSkewed": ("the clocks differ", "Set the clock of this machine."),
    "403": ("access is denied", "Check the credentials and what they allow."),
}
"""What a server says where its keeper has to do something, and what.

Source: Amazon S3 API Reference, Error responses, list of error codes.
"""


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """What tells one content of a key from another: the entity tag, and the size in bytes."""

    tag: str
    size: int


@dataclass(frozen=True, slots=True)
class ListedObject:
    """A line of a listing; `upload` names an upload in parts that nobody has ended. `modified`: seconds since 1970."""

    key: str
    size: int
    modified: float
    upload: str | None = None


class ObjectBody:
    """The bytes of a reply. `stamp` is that of the whole object, also where a part was asked for."""

    def __init__(self, reply: Any, bucket: Bucket) -> None:
        whole = reply.get("ContentRange", "").rpartition("/")[2]
        self.stamp = ObjectVersion(reply["ETag"], int(whole or reply["ContentLength"]))
        self._body = reply["Body"]
        self._bucket = bucket

    def read(self, most: int) -> bytes:
        """The next bytes, none at the end. Raises `Temporary` where it breaks off."""
        with self._bucket.translated():
            data: bytes = self._body.read(most)
            return data

    def close(self) -> None:
        """Give the connection back."""
        self._body.close()


class Bucket:
    """One bucket. Every method raises `Temporary`, or `DiskFull`, where it has no answer; any thread may call it."""

    def __init__(self, name: str, place: S3Place) -> None:
        self.name = name
        self._place = place
        self._client = _connect(name, place, place.endpoint)
        public = place.public_endpoint
        self._signer = _connect(name, place, public) if public and public != place.endpoint else self._client
        self._proven = threading.Event()
        self._rests_until = 0.0

    def prove(self, key: str) -> None:
        """Returns when the bucket can be listed, and something was written under `key` once. Raises `Usage` too."""
        with self.translated(starting=True):
            self._client.list_objects_v2(Bucket=self.name, Prefix=key, MaxKeys=1)
            if not self._proven.is_set():
                self._client.put_object(Bucket=self.name, Key=key, Body=b"mxr\n")
                self._proven.set()

    def stat(self, key: str) -> ObjectVersion | None:
        """What lies under a key."""
        with self._asking():
            found = self._unless(ABSENT, self._client.head_object, Key=key)
        return found and ObjectVersion(found["ETag"], found["ContentLength"])

    def get(self, key: str, offset: int = 0, length: int | None = None) -> ObjectBody | None:
        """The bytes under a key from `offset`, all or `length` of them (at least one). None for none."""
        part = {}
        if offset or length is not None:
            part["Range"] = f"bytes={offset}-{'' if length is None else offset + length - 1}"
        with self._asking():
            found = self._unless(ABSENT | OUTSIDE, self._client.get_object, Key=key, **part)
        return found and ObjectBody(found, self)

    def put(self, key: str, data: bytes | bytearray) -> str:
        """Keep bytes under a key, whatever was there; the entity tag."""
        with self._asking():
            found = self._client.put_object(Bucket=self.name, Key=key, Body=data, ContentType=BYTES)
        return str(found["ETag"])

    def begin(self, key: str) -> str:
        """Begin an upload in parts; its name."""
        with self._asking():
            found = self._client.create_multipart_upload(Bucket=self.name, Key=key, ContentType=BYTES)
        return str(found["UploadId"])

    def part(self, key: str, upload: str, number: int, data: bytes | bytearray) -> str:
        """Send a part, counted from 1; its entity tag."""
        with self._asking():
            found = self._client.upload_part(Bucket=self.name, Key=key, UploadId=upload, PartNumber=number, Body=data)
        return str(found["ETag"])

    def complete(self, key: str, upload: str, tags: list[str]) -> str | None:
        """Make the object of its parts; its entity tag. None where there is no such upload (any more)."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        verb = self._client.complete_multipart_upload
        with self._asking():
            found = self._unless(GONE_UPLOAD, verb, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
        return found and str(found["ETag"])

    def abort(self, key: str, upload: str) -> None:
        """Forget an upload in parts; nothing happens where there is none."""
        with self._asking():
            self._unless(GONE_UPLOAD, self._client.abort_multipart_upload, Key=key, UploadId=upload)

    def copy(self, key: str, to: str) -> None:
        """Copy an object within the bucket, without its bytes coming here."""
        with self._asking():
            self._client.copy({"Bucket": self.name, "Key": key}, self.name, to)

    def delete(self, key: str) -> None:
        """Remove what lies under a key; nothing happens where there is nothing."""
        with self._asking():
            self._unless(ABSENT, self._client.delete_object, Key=key)

    def walk(self, prefix: str) -> Iterator[ListedObject]:
        """All objects under a prefix."""
        for row in self._pages("list_objects_v2", "Contents", prefix):
            yield ListedObject(row["Key"], row["Size"], row["LastModified"].timestamp())

    def uploads(self, prefix: str) -> Iterator[ListedObject]:
        """All uploads in parts under a prefix that nobody has ended."""
        for row in self._pages("list_multipart_uploads", "Uploads", prefix):
            yield ListedObject(row["Key"], 0, row["Initiated"].timestamp(), row["UploadId"])

    def sign(self, key: str, seconds: int) -> str:
        """A URL by which anyone gets the object for some time."""
        with self.translated():
            url = self._signer.generate_presigned_url(
                "get_object", Params={"Bucket": self.name, "Key": key}, ExpiresIn=seconds
            )
        return str(url)

    def _pages(self, verb: str, rows: str, prefix: str) -> Iterator[Any]:
        with self._asking():
            for page in self._client.get_paginator(verb).paginate(Bucket=self.name, Prefix=prefix):
                yield from page.get(rows, ())

    def _unless(self, codes: set[str], verb: Any, **words: Any) -> Any:
        try:
            return verb(Bucket=self.name, **words)
        except boto.ClientError as problem:
            if _code(problem) in codes:
                return None
            raise

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Around a request: none is sent while the server rests."""
        if time.monotonic() < self._rests_until:
            raise Temporary("The registry's S3 store did not answer a moment ago.", hint=HINT)
        with self.translated():
            try:
                yield
            except (boto.HTTPClientError, boto.ConnectionError):
                self._rests_until = time.monotonic() + REST
                raise

    @contextmanager
    def translated(self, starting: bool = False) -> Iterator[None]:
        """Turns the server's troubles into ours; those that its keeper has to mend are `Usage` at the start."""
        try:
            yield
        except boto.ClientError as problem:
            raise self._refused(problem, starting) from problem
        except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError) as problem:
            kind = Usage if starting else Temporary
            raise kind(f"No credentials for S3: {problem}", hint="Set AWS_ACCESS_KEY_ID and its secret.") from problem
        except (boto.ReadTimeoutError, boto.ConnectTimeoutError) as problem:
            raise self._late() from problem
        except boto.SSLError as problem:
            kind = Usage if starting else Temporary
            raise kind("The S3 store's certificate is not one to trust.", hint="Set MXR_S3_CA_FILE.") from problem
        except (boto.BotoCoreError, boto3.exceptions.Boto3Error, urllib3.exceptions.HTTPError, OSError) as problem:
            if isinstance(problem, urllib3.exceptions.TimeoutError):
                raise self._late() from problem
            raise Temporary(
                f"The registry's S3 store cannot be reached, or broke off ({type(problem).__name__}).", hint=HINT
            ) from problem

    def _late(self) -> Temporary:
        words = f"The registry's S3 store did not answer within {self._place.timeout:g} seconds."
        return Temporary(words, hint=HINT)

    def _refused(self, problem: boto.ClientError, starting: bool) -> MxrError:
        code = _code(problem)
        if code in FULL:
            return DiskFull("The registry's S3 store is full.")
        if code in REFUSALS:
            why, hint = REFUSALS[code]
            kind = Usage if starting else Temporary
            return kind(f"The S3 store refuses the registry in bucket {self.name}: {why} ({code}).", hint=hint)
        status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return Temporary(f"The registry's S3 store answered {status} {code}.", hint=HINT)


BYTES = "application/octet-stream"
HINT = "Try again; if this stays so, look at the S3 server, and at MXR_S3_ENDPOINT of the registry."


def _style(name: str, place: S3Place, endpoint: str | None) -> str:
    """By itself boto3 signs URLs to AWS for no region, which the right one then answers with a redirect.

    A name with dots is none that the server's certificate covers.
    """
    if endpoint is not None or place.style != "auto":
        return place.style
    return "path" if "." in name else "virtual"


def _connect(name: str, place: S3Place, endpoint: str | None) -> Any:
    session = boto3.session.Session()
    config = Config(
        signature_version="s3v4",
        connect_timeout=min(5.0, place.timeout),
        read_timeout=place.timeout,
        retries={"total_max_attempts": TRIES, "mode": "standard"},
        max_pool_connections=CONNECTIONS,
        # Extensions of AWS that other servers refuse or ignore.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # The signature covers the sha256 of each body: every server refuses bytes that changed on the way.
        s3={"addressing_style": _style(name, place, endpoint), "payload_signing_enabled": True},
    )
    try:
        return session.client(
            "s3",
            endpoint_url=endpoint,
            region_name=place.region or session.region_name or "us-east-1",
            verify=place.ca_file,
            config=config,
        )
    except (boto.BotoCoreError, ValueError) as problem:
        raise Usage(f"S3 cannot be set up: {problem}.", hint="Check MXR_S3_* and the AWS configuration.") from problem


def _code(problem: boto.ClientError) -> str:
    return str(problem.response.get("Error", {}).get("Code", ""))
