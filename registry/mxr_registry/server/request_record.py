"""The record of each request: what `/metrics` counts of it, and what its line in the log says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxr_registry import counters

RECORD = "mxr.record"
"""Where the record is in the scope of a request."""

UNKNOWN = "none"
"""The route of a request that no route answered: any number of paths may be tried."""


@dataclass(slots=True)
class RequestRecord:
    """What is known of a request. `route`: method and path of its route. `status`: 0 where no reply began."""

    route: str = UNKNOWN
    principal: str = ""
    status: int = 0
    received: int = 0
    sent: int = 0
    begun: float = field(default_factory=time.perf_counter)


class RequestRecords:
    """ASGI middleware that makes the record of each request, and counts it when it ends."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        record = scope[RECORD] = RequestRecord()

        async def counted_receive() -> Message:
            message = await receive()
            record.received += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            else:
                record.sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, counted_receive, counted_send)
        finally:
            self._count(record)

    def _count(self, record: RequestRecord) -> None:
        route = record.route
        counters.REQUESTS.labels(route, record.status).inc()
        counters.REQUEST_SECONDS.labels(route).observe(time.perf_counter() - record.begun)
        if record.received:
            counters.RECEIVED.labels(route).inc(record.received)
        if record.sent:
            counters.SENT.labels(route).inc(record.sent)
