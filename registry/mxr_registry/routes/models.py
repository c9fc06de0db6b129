"""Models over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import models

from .deps import Body, By, InServices, read, reply
from .schemas import body

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.post("", summary="Register a model", openapi_extra=body(artifact_protocol.RegisterModel))
def register(stated: Body, rooms: InServices, by: By) -> Response:
    """With a manifest its hash is checked over the bytes, and they are kept for compiling."""
    statement = read(artifact_protocol.RegisterModel, stated)
    return reply(models.register(rooms.db, rooms.store, rooms.look, by.namespace, statement))


@router.get("", summary="Models, the newest first")
def list_models(rooms: InServices, by: By) -> Response:
    """Without their manifests."""
    with rooms.db.reading() as session:
        return reply(models.listed(session, by.namespace))


@router.get("/{model}", summary="One model with its manifest")
def show_model(model: str, rooms: InServices, by: By) -> Response:
    """By its hash: `xxh3:` and 32 hex digits."""
    with rooms.db.reading() as session:
        return reply(models.show(session, by.namespace, model))
