"""Routes for models."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from mxr.artifact.key import MODEL_SHORT
from mxr.errors import Json
from mxr.protocol.artifacts import Model, Models, RegisterModel
from mxr_registry.artifacts import models
from mxr_registry.database.paging import PageFilters
from mxr_registry.openapi import STORED, errors
from mxr_registry.server.bodies import Large

from .deps import CallerDep, ModelIdentity, RequesterDep, ServicesDep, created, scoped_router

router = scoped_router(prefix="/v1/models", tags=["models"])


class ModelFilters(PageFilters, frozen=True):
    """Filters of a list of models."""

    prefix: str | None = Field(
        default=None,
        description="How the identity begins: `sha256:` and 12 or more hex digits.",
        pattern=f"^{MODEL_SHORT.pattern}$",
    )


@router.post("", response_model=Model, responses=STORED | errors(404, 409, 429))
async def register_model(
    message: Large[RegisterModel], response: Response, services: ServicesDep, caller: CallerDep, client: RequesterDep
) -> Json:
    """Register a model with its bytes.

    The registry computes the identity from the blobs, which it checked when they came, and keeps the bytes.
    """
    known = (services.db, services.store, services.describe_model, caller)
    # One request at a time verifies a model: a fleet may register the same model many times at once.
    turn = f"{caller.namespace} {message.identity}"
    model, new = await services.checking.run(client, models.register_model, *known, message, turn=turn)
    created(response, f"/v1/models/{message.identity}", new=new)
    return model


@router.get("", response_model=Models)
def list_models(services: ServicesDep, caller: CallerDep, filters: Annotated[ModelFilters, Query()]) -> Json:
    """List models, newest first.

    The models without their manifests. `prefix`: only models whose identity begins with these digits.
    """
    with services.db.reading() as session:
        return models.list_models(session, caller.namespace, filters.prefix, filters.after, filters.limit)


@router.get("/{model}", response_model=Model, responses=errors(404))
def get_model(model: ModelIdentity, services: ServicesDep, caller: CallerDep) -> Json:
    """Show one model with its manifest.

    `model` is the identity of the model: `sha256:` and 64 hex digits.
    """
    with services.db.reading() as session:
        return models.show_model(session, caller.namespace, model)
