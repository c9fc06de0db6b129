"""Routes for models."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import models
from mxr_registry.database.paging import MAX_ROWS

from .bodies import LargeBodyDep, decode_body
from .deps import AfterQuery, CallerDep, LimitQuery, ServicesDep, reply, stored_reply
from .schemas import request_body

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.post(
    "",
    summary="Register a model with its bytes",
    openapi_extra=request_body(artifact_protocol.RegisterModel),
    status_code=201,
)
async def register(body: LargeBodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """The registry computes the identity from the blobs, which it checked when they came, and keeps the bytes."""
    wanted = await run_in_threadpool(decode_body, artifact_protocol.RegisterModel, body)
    known = (services.db, services.store, services.describe_model, caller.namespace)
    # One request at a time verifies a model: a fleet may register the same model many times at once.
    turn = f"{caller.namespace} {wanted.model}"
    found = await services.checking.run(caller.address, models.register_model, *known, wanted, turn=turn)
    return stored_reply(found, "/v1/models")


@router.get("", summary="List models, newest first")
def list_models(
    services: ServicesDep,
    caller: CallerDep,
    prefix: str | None = None,
    after: AfterQuery = None,
    limit: LimitQuery = MAX_ROWS,
) -> Response:
    """The models without their manifests. `prefix`: only models whose identity begins with these digits."""
    with services.db.reading() as session:
        return reply(models.list_models(session, caller.namespace, prefix, after, limit))


@router.get("/{model}", summary="Show one model with its manifest")
def show_model(model: str, services: ServicesDep, caller: CallerDep) -> Response:
    """`model` is the identity of the model: `sha256:` and 64 hex digits."""
    with services.db.reading() as session:
        return reply(models.show_model(session, caller.namespace, model))
