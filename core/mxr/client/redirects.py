"""Bytes from where a registry points to: a signed URL into its store, followed without the token while it serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import urllib3

PLAIN = {"User-Agent": "mxr/1", "Accept-Encoding": "identity"}
"""The headers that any host may see."""

PATIENCE = 5.0
"""Seconds that another host gets to take a connection, before the registry is asked for the bytes."""


class RedirectHost:
    """The other host that one registry points to. `serves` until it cannot be reached."""

    def __init__(self) -> None:
        self.serves = True

    @contextmanager
    def follow(
        self,
        pool: urllib3.PoolManager,
        first: urllib3.BaseHTTPResponse,
        part: Mapping[str, str],
        timeout: float,
    ) -> Iterator[urllib3.BaseHTTPResponse | None]:
        """What is found where the reply `first` points to; None where that is nothing, and the registry has to send.

        `part`: the Range header, where one was sent. `timeout`: seconds without a byte.
        """
        import urllib3

        try:
            reply = pool.request(
                "GET",
                first.headers.get("location", "") if first.status == 307 else "",
                headers={**PLAIN, **part},
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=min(PATIENCE, timeout), read=timeout),
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError):
            # It is the same host for all blobs: each would wait as long.
            self.serves = False
            yield None
            return
        with given_back(reply):
            yield reply if reply.status == (206 if part else 200) else None


@contextmanager
def given_back(reply: urllib3.BaseHTTPResponse) -> Iterator[None]:
    """Ends with the connection back in the pool, or closed where the reply was not read to its end."""
    try:
        yield
    finally:
        reply.drain_conn() if reply.status < 300 and reply.length_remaining == 0 else reply.close()
        reply.release_conn()
