"""A registry that lies takes neither the memory nor the time of a client."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import zstandard
from harness.rows import for_each

from mxr.artifact import packed
from mxr.artifact.manifest import Blob
from mxr.client import registry as registry_module
from mxr.client.registry import Client
from mxr.client.retry import RetryPolicy
from mxr.errors import InvalidReplyError, MxrError, UnreachableError
from mxr.protocol.artifacts import Locks
from mxr.settings import Settings

HEAD = b"HTTP/1.1 200 OK\r\nmxr-registry: 11111111-1111-4111-8111-111111111111\r\n"
FOR_EVER = 60.0


class Liar:
    """Answers each connection with `parts`, one after the other, and with the last one again and again."""

    def __init__(self, *parts: bytes, pause: float = 0.0, endless: bool = True) -> None:
        self._parts, self._pause, self._endless = parts, pause, endless
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.sent = 0
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self._answer(connection)
        except OSError:
            return

    def _answer(self, connection: socket.socket) -> None:
        connection.recv(1 << 16)
        end = time.monotonic() + FOR_EVER
        try:
            for part in self._parts:
                connection.sendall(part)
            while self._endless and time.monotonic() < end and not self.ended.wait(self._pause):
                connection.sendall(self._parts[-1])
                self.sent += len(self._parts[-1])
        except OSError:
            pass

    def close(self) -> None:
        self.ended.set()
        self._listener.close()


@contextmanager
def lying(
    *parts: bytes, pause: float = 0.0, endless: bool = True, timeout: float = 5.0
) -> Iterator[tuple[Liar, Client]]:
    liar = Liar(*parts, pause=pause, endless=endless)
    try:
        yield liar, Client(Settings(registry=liar.url, token="t", timeout=timeout))
    finally:
        liar.close()


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that fails is not repeated."""

    def attempt(policy: RetryPolicy | None, work: Any, **_: Any) -> Any:
        return work()

    monkeypatch.setattr(registry_module, "retry", attempt)


@pytest.mark.parametrize("head", [b"content-length: 99999999999\r\n\r\n", b"\r\n"])
def test_a_reply_without_end_is_given_up(head: bytes) -> None:
    with lying(HEAD + head, b" " * (1 << 20)) as (liar, client):
        with pytest.raises(MxrError, match="more than 16777216 bytes"):
            client.locks()
        assert liar.sent < 64 << 20


def test_an_error_without_end_is_one_by_its_status() -> None:
    with lying(HEAD.replace(b"200 OK", b"404 Not Found") + b"\r\n", b" " * (1 << 20)) as (liar, client):
        with pytest.raises(MxrError) as caught:
            client.locks()
        assert "HTTP status 404" in caught.value.message and liar.sent < 32 << 20


def test_a_reply_with_millions_of_values_is_not_built() -> None:
    body = b"[" + b"{}," * 1_000_000 + b"{}]"
    head = HEAD + b"content-length: %d\r\n\r\n" % len(body)
    with lying(head + body, endless=False) as (_, client), pytest.raises(MxrError, match="more than 600000 values"):
        client.locks()


def test_what_nobody_asked_to_compress_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    head = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb)
    with lying(head + bomb, endless=False) as (_, client):
        with pytest.raises(MxrError, match="the encoding 'gzip', which nobody asked for"):
            client.locks()
        with pytest.raises(MxrError, match="gzip"), client.blob("0" * 64, 64 << 20, direct=False) as chunks:
            next(chunks)


def test_packed_bytes_take_no_more_than_the_blob_has() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(packed.FRAME))
    count = packed.MAX_FRAMES
    words = (
        struct.pack("<4sQI", packed.WORD, count * packed.FRAME, packed.FRAME) + struct.pack("<I", len(frame)) * count
    )
    bomb = packed.MAGIC + struct.pack("<I", len(words)) + words + frame * count
    head = HEAD + b"content-encoding: zstd\r\ncontent-length: %d\r\n\r\n" % len(bomb)
    with lying(head + bomb, endless=False) as (_, client):
        with pytest.raises(MxrError, match="damaged bytes"), client.blob("0" * 64, 64 << 20, direct=False) as chunks:
            next(chunks)
        with pytest.raises(MxrError, match="the encoding 'zstd', which nobody asked for"):
            client.locks()
        with pytest.raises(MxrError, match="zstd"), client.blob("0" * 64, 64 << 20, direct=False, start=5) as chunks:
            next(chunks)


@pytest.mark.parametrize(
    "parts",
    [(HEAD, b"x"), (HEAD + b"content-length: 1000\r\n\r\n", b" "), (HEAD + b"\r\n", b" ")],
    ids=["header", "body", "body without length"],
)
def test_a_reply_that_drips_ends(parts: tuple[bytes, ...]) -> None:
    """Each byte comes in time; the reply never does."""
    with lying(*parts, pause=0.05, timeout=0.5) as (_, client):
        begun = time.monotonic()
        with pytest.raises(MxrError):
            client.locks()
        assert time.monotonic() - begun < FOR_EVER / 2


def test_a_blob_that_drips_ends() -> None:
    blob = Blob("0" * 64, 1000)
    with lying(HEAD + b"content-length: 1000\r\n\r\n", b"x", pause=0.05, timeout=0.5) as (_, client):
        begun = time.monotonic()
        with (
            pytest.raises(UnreachableError, match="broke during a transfer"),
            client.blob(blob.sha256, blob.size) as chunks,
        ):
            list(chunks)
        assert time.monotonic() - begun < FOR_EVER / 2


def test_an_honest_reply_is_read() -> None:
    body = b'{"items":[]}'
    with lying(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body, endless=False) as (_, client):
        assert client.exchange(Locks, "GET", "/locks") == Locks(())


GARBAGE = {
    "html": b"<!doctype html><title>It works!</title>",
    "nothing": b"",
    "bytes": bytes(range(256)),
    "null": b"null",
    "a list": b"[]",
    "a number": b"7",
    "another object": b'{"name": 7, "items": {"a": []}, "artifact": "x", "next": 3}',
    "depth": b"[" * 100_000,
    "a huge number": b'{"items": [' + b"9" * 10_000 + b"]}",
    "not a number": b'{"items": NaN, "name": Infinity}',
    "a lone surrogate": b'{"name": "\\ud800", "namespace": "", "scopes": [], "token": null}',
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("call", [Client.whoami, Client.artifacts, Client.locks, Client.workers])
def test_garbage_is_no_bug_of_mxr(body: bytes, call: Any) -> None:
    """Whatever answers with the header of a registry: it is named, and the exit number says what is wrong."""
    with (
        lying(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body, endless=False) as (liar, client),
        pytest.raises(InvalidReplyError) as caught,
    ):
        url = liar.url
        call(client)
    assert caught.value.exit == 69 and url in caught.value.message and "bug" not in caught.value.hint


@for_each(
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 999 Odd\r\nretry-after: never\r\n\r\n<html>",
        b"\0\xff\r\n\r\n",
    ]
)
def test_what_is_no_http_is_no_bug_of_mxr(head: bytes) -> None:
    with lying(head, endless=False) as (liar, client), pytest.raises(UnreachableError) as caught:
        url = liar.url
        client.whoami()
    assert caught.value.exit == 69 and url in caught.value.message
