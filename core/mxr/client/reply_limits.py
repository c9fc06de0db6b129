"""What a client takes of a registry's replies: bytes, values and time. A registry can be wrong, or lie.

A read timeout bounds the pause between two bytes only: a reply that drips one byte a minute would last for ever. So the
socket of a request is shut down after the timeout, while the header arrives as well as while the body does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

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
