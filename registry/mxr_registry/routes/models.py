"""Routes for models."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from fastapi.concurrency import run_in_threadpool

from mxr.artifact.key import MODEL_SHORT
from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import models
from mxr_registry.database.paging import MAX_ROWS
from mxr_registry.openapi.operations import LOCATION, Success, operation

from .bodies import LargeBodyDep, decode_body
from .deps import (
    AfterQuery,
    CallerDep,
    LimitQuery,
    ModelIdentity,
    RequesterDep,
    ServicesDep,
    reply,
    scoped_router,
    stored_reply,
)

router = scoped_router(prefix="/v1/models", tags=["models"])


@router.post(
    "",
    summary="Register a model with its bytes",
    **operation(
        "register_model",
        {
            200: Success("The registry has the model already.", artifact_protocol.Model),
            201: Success("The model.", artifact_protocol.Model, LOCATION),
        },
        takes=artifact_protocol.RegisterModel,
        errors=(404, 409, 429),
    ),
)
async def register(body: LargeBodyDep, services: ServicesDep, caller: CallerDep, client: RequesterDep) -> Response:
    """The registry computes the identity from the blobs, which it checked when they came, and keeps the bytes."""
    message = await run_in_threadpool(decode_body, artifact_protocol.RegisterModel, body)
    known = (services.db, services.store, services.describe_model, caller)
    # One request at a time verifies a model: a fleet may register the same model many times at once.
    turn = f"{caller.namespace} {message.identity}"
    found = await services.checking.run(client, models.register_model, *known, message, turn=turn)
    return stored_reply(found, "/v1/models")


@router.get(
    "",
    summary="List models, newest first",
    **operation("list_models", {200: Success("One page.", artifact_protocol.Models)}),
)
def list_models(
    services: ServicesDep,
    caller: CallerDep,
    prefix: Annotated[
        str | None,
        Query(
            description="How the identity begins: `sha256:` and 12 or more hex digits.",
            json_schema_extra={"pattern": f"^{MODEL_SHORT.pattern}$"},
        ),
    ] = None,
    after: AfterQuery = None,
    limit: LimitQuery = MAX_ROWS,
) -> Response:
    """The models without their manifests. `prefix`: only models whose identity begins with these digits."""
    with services.db.reading() as session:
        return reply(models.list_models(session, caller.namespace, prefix, after, limit))


@router.get(
    "/{model}",
    summary="Show one model with its manifest",
    **operation("get_model", {200: Success("The model.", artifact_protocol.Model)}, errors=(404,)),
)
def show_model(model: ModelIdentity, services: ServicesDep, caller: CallerDep) -> Response:
    """`model` is the identity of the model: `sha256:` and 64 hex digits."""
    with services.db.reading() as session:
        return reply(models.show_model(session, caller.namespace, model))
