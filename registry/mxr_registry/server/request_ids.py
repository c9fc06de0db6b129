"""Adds `X-Request-ID` to every reply, and makes it the id of the request (`mxr_registry.request_id`).

From here on, errors name facts as fields of the API.
"""

from __future__ import annotations

import mxr.facts as facts
from mxr_registry import request_id

from .asgi import App, Message, Receive, Scope, Send


class RequestIds:
    """ASGI middleware, before all others."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        facts.dialect.set(facts.HTTP)
        header = (request_id.HEADER, request_id.begin(scope["headers"]).encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        await self.app(scope, receive, send_with_id)
