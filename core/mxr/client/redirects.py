"""Downloads from the object store that a registry redirects to: signed URLs, requested without the token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import urllib3

PLAIN = {"User-Agent": "mxr/1", "Accept-Encoding": "identity"}
"""Headers without secrets, sent to any host."""

CONNECT = 5.0
"""Seconds to connect to the other host before the registry is asked for the bytes instead."""


class RedirectHost:
    """The host that one registry redirects to. `serves` becomes false when that host cannot be reached."""

    def __init__(self) -> None:
        self.serves = True

    @contextmanager
    def follow(
        self,
        pool: urllib3.PoolManager,
        first: urllib3.BaseHTTPResponse,
        timeout: float,
    ) -> Iterator[urllib3.BaseHTTPResponse | None]:
        """Follow the redirect in `first` and yield the reply, or None when the registry has to send the bytes.

        `timeout`: seconds without a byte received.
        """
        import urllib3

        try:
            reply = pool.request(
                "GET",
                first.headers.get("location", "") if first.status == 307 else "",
                headers=PLAIN,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=min(CONNECT, timeout), read=timeout),
                preload_content=False,
                decode_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError):
            # All blobs are on the same host: without this, each of them would wait for the timeout.
            self.serves = False
            yield None
            return
        with returned_connection(reply):
            yield reply if reply.status == 200 else None


@contextmanager
def returned_connection(reply: urllib3.BaseHTTPResponse) -> Iterator[None]:
    """Return the connection to the pool after the block, or closes it if the reply was not read to its end."""
    try:
        yield
    finally:
        reply.drain_conn() if reply.status < 300 and reply.length_remaining == 0 else reply.close()
        reply.release_conn()
