"""The route for Prometheus metrics, and the middleware that counts resolve hits."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxr_registry import metrics
from mxr_registry.openapi.operations import TEXT, Success, operation

from .deps import JobRulesDep, ServicesDep, scoped_router

router = scoped_router(tags=["health"])


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    **operation(
        "get_metrics", {200: Success("Metrics in the text format of Prometheus.", {"type": "string"}, media_type=TEXT)}
    ),
)
def show_metrics(request: Request, services: ServicesDep, rules: JobRulesDep) -> Response:
    """Jobs, queue, workers, compile seconds by arch, and resolve hits and misses."""
    with services.db.reading() as session:
        text = metrics.text(session, rules, request.app.state.counters)
    return Response(text.encode(), media_type="text/plain; version=0.0.4")


class CountedApp:
    """ASGI middleware that counts resolve hits: responses with status 200 from `/v1/resolve`."""

    def __init__(self, app: ASGIApp, counters: metrics.Counters) -> None:
        self.app, self.counters = app, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http" or scope["path"] != "/v1/resolve":
            await self.app(scope, receive, send)
            return

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self.counters.hit()
            await send(message)

        await self.app(scope, receive, send_and_count)
