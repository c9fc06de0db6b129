"""Route for the request defaults of a namespace."""

from __future__ import annotations

from fastapi import Response

from mxr.protocol.artifacts import NamespaceDefaults, message_document
from mxr.util import codec
from mxr_registry.artifacts import namespaces
from mxr_registry.openapi.operations import Success, operation

from .deps import CallerDep, ServicesDep, reply, scoped_router

router = scoped_router(prefix="/v1/defaults", tags=["resolve"])


@router.get(
    "",
    summary="Show the request defaults of the namespace",
    **operation("get_defaults", {200: Success("The defaults.", NamespaceDefaults)}),
)
def show_defaults(services: ServicesDep, caller: CallerDep) -> Response:
    """What a request of this namespace has where neither its options nor the host tell. Null: there is no default."""
    with services.db.reading() as session:
        return reply(codec.canonical(message_document(namespaces.defaults_of(session, caller.namespace))))
