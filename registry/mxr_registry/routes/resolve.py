"""From a request to the artifact to take, or to the reasons why there is none."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mxr.artifact.qualities import Request as Asking
from mxr_registry.artifacts import misses, resolution

from .deps import Body, By, DirectRoute, InServices, reply
from .schemas import body

router = APIRouter(tags=["resolve"])
straight = APIRouter(tags=["resolve"], route_class=DirectRoute)


@straight.post("/v1/resolve", summary="The artifact that serves a request", openapi_extra=body(Asking))
def resolve(asked: Body, rooms: InServices, by: By) -> Response:
    """A hit with manifest and URLs; or 404 with the nearest artifacts and why they do not serve."""
    return reply(resolution.resolve(rooms.db, rooms.tally, by.namespace, resolution.read(asked)))


@router.get("/v1/misses", summary="What was asked for in vain, the latest first")
def list_misses(rooms: InServices, by: By) -> Response:
    """Each request with its count, first and last time, and the nearest artifacts then."""
    with rooms.db.reading() as session:
        return reply(misses.listed(session, by.namespace))
