"""Serves the registry below a path of a proxy, such as `/mxr`, whether the proxy removes that path or passes it on."""

from __future__ import annotations

from .asgi import App, Message, Receive, Scope, Send

LOCATION = b"location"


class SubPath:
    """ASGI middleware that removes `root` from the path of a request, and adds it to `Location` of the reply.

    Requests without it are served too: probes reach the registry directly. `root`: begins with a slash and does not end
    with one.
    """

    def __init__(self, app: App, root: str) -> None:
        self.app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path: str = scope["path"]
        if path.startswith(f"{self._root}/"):
            scope = {**scope, "path": path.removeprefix(self._root)}

        async def send_below(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [self._below(*header) for header in message.get("headers", ())]
            await send(message)

        await self.app(scope, receive, send_below)

    def _below(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        """A header of the reply. A redirect to a signed URL has another host, and stays as it is."""
        own = name.lower() == LOCATION and value.startswith(b"/")
        return name, self._root.encode() + value if own else value
