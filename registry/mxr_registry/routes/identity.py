"""The middleware that adds `MXR-Registry`, the UUID of the database, to every reply.

Clients keep what they cache apart by this UUID: what one registry answered is never served for another one that
answers at the same URL.
"""

from __future__ import annotations

from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxr.protocol.artifacts import REGISTRY_HEADER
from mxr_registry.database.identity import RegistryIdentity

NAME = REGISTRY_HEADER.lower().encode()


class IdentifiedApp:
    """ASGI middleware that adds the header. A reply has none while the database does not answer."""

    def __init__(self, app: ASGIApp, identity: RegistryIdentity) -> None:
        self.app, self.identity = app, identity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_identified(message: Message) -> None:
            if message["type"] == "http.response.start":
                uuid = self.identity.known or await run_in_threadpool(self.identity.read)
                if uuid is not None:
                    message["headers"] = [*message.get("headers", ()), (NAME, uuid.encode())]
            await send(message)

        await self.app(scope, receive, send_identified)
