"""Figures for Prometheus over HTTP, and the count of resolves that found something."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxr_registry import metrics

from .deps import InServices
from .jobs import UnderRules

router = APIRouter(tags=["health"])


@router.get("/metrics", summary="Figures for Prometheus")
def show(request: Request, rooms: InServices, rules: UnderRules) -> Response:
    """Jobs, queue, workers, compile seconds by arch, resolves that hit and missed."""
    with rooms.db.reading() as session:
        text = metrics.text(session, rules, request.app.state.counters)
    return Response(text.encode(), media_type="text/plain; version=0.0.4")


class CountedApp:
    """An application whose successful resolves are counted."""

    def __init__(self, app: ASGIApp, counters: metrics.Counters) -> None:
        self.app, self.counters = app, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] != "/v1/resolve":
            await self.app(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self.counters.hit()
            await send(message)

        await self.app(scope, receive, watch)
