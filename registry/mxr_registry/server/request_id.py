"""The id of the request that is being answered: the client's `X-Request-ID`, or one that is made here.

It is in the reply, in an error, and in every line that is logged while the request is answered, in threads too.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextvars import ContextVar

from mxr.errors import MxrError
from mxr.util.codec import canonical

HEADER = b"x-request-id"
VALID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")

_CURRENT: ContextVar[str] = ContextVar("request_id", default="")


def begin_request(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id of a request with these headers, which is the current one from now on.

    An id of the client that is not `VALID` is replaced: it would go to logs and terminals.
    """
    given = [value for name, value in headers if name == HEADER]
    found = given[0].decode() if len(given) == 1 and VALID.fullmatch(given[0]) else make()
    _CURRENT.set(found)
    return found


def make() -> str:
    """Return a new id."""
    return secrets.token_hex(8)


def current() -> str:
    """Return the id of the request that this task or thread works for; empty outside of requests."""
    return _CURRENT.get()


def error_body(error: MxrError, status: int, id: str | None = None) -> bytes:
    """Return the body of a reply with this error. `id`: of the request, if it is not the current one."""
    return canonical(error.to_json(status) | {"request_id": id or current()}).encode()
