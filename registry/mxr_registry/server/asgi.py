"""Types of ASGI, and the reply that refuses a request before it reaches the application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from mxr.errors import MEDIA_TYPE, MxrError
from mxr_registry.request_id import error_body

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def send_error(send: Send, error: MxrError, status: int, *headers: tuple[bytes, bytes]) -> None:
    """Send an error as the whole response. The client may still be sending its body; nothing reads it."""
    body = error_body(error, status)
    fields = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
