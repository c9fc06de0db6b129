"""What a client takes of replies: bytes, values and time; what a proxy's mean, and where a redirect leads.

A registry can be wrong, or lie. A read timeout bounds the pause between two bytes only: a reply that drips one byte a
minute would last for ever. So the socket of a request is shut down after the timeout, while the header arrives as well
as while the body does.

Source for proxies: nginx.org, modules ngx_http_core_module and ngx_http_proxy_module (`client_max_body_size` is 1 MiB
and `proxy_read_timeout` 60 s where nothing sets them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mxr.errors import MxrError, TemporaryError, TooLargeError

if TYPE_CHECKING:
    import urllib3

MAX_REPLY = 16 << 20
"""Bytes of a JSON reply. The largest are an artifact with its description, and a page of a list."""

MAX_ERROR = 1 << 20
"""Bytes of an error; of a larger one only the status is used."""

MAX_VALUES = 600_000
"""JSON values in a reply. Each takes up to 250 bytes of memory."""

MIN_RATE = 8 << 10
"""Bytes per second that a blob must reach on average, beyond the timeout of its request."""


@contextmanager
def shut_down_after(seconds: float, shut_down: Callable[[], object]) -> Iterator[None]:
    """Call `shut_down` in another thread if the block takes longer."""
    import threading

    def stop() -> None:
        with suppress(OSError, ValueError, RuntimeError, AttributeError):
            shut_down()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # The thread ends a moment later: the reply and its pool must not end with it, while the program exits.
        timer.function = _nothing


def _nothing() -> None: ...


PAGE = "The section on proxies in docs/operate.md has a configuration that works."

HINTS = {
    429: "Send fewer requests at the same time, or raise the limit of the proxy.",
    413: f"Raise its limit of a request's body to 5 GiB; in nginx: `client_max_body_size 5g;`. {PAGE}",
    502: "See whether the registry runs, and whether the proxy has its address.",
    503: "See whether the registry runs, and whether the proxy has its address.",
    504: "The registry took longer than the proxy waits. Let it wait for 20 minutes; in nginx: "
    f"`proxy_read_timeout 20m;`. {PAGE}",
}


def proxy_error(status: int, server: str) -> MxrError | None:
    """Return the error for a reply that does not come from the registry, None where it may come from anything.

    `server`: the Server header of the reply.
    """
    hint = HINTS.get(status)
    if hint is None:
        return None
    name = f" ({server[:60]})" if server else ""
    if status == 413:
        return TooLargeError(f"A proxy{name} in front of the registry does not take a body of this size.", hint=hint)
    if status == 429:
        return TemporaryError(f"A proxy{name} in front of the registry limits the rate of requests.", hint=hint)
    what = "gave up waiting for the registry" if status == 504 else "does not reach the registry"
    return TemporaryError(f"A proxy{name} in front of the registry {what} (HTTP status {status}).", hint=hint)


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
