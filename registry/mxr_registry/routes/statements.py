"""Routes for what a registry signed, and the keys with which it does."""

from __future__ import annotations

from mxr.errors import Json
from mxr.protocol.statements import RegistryKeys, Statements
from mxr_registry.access import signing_keys
from mxr_registry.artifacts import statements
from mxr_registry.openapi import errors

from .deps import ArtifactId, CallerDep, ServicesDep, scoped_router

router = scoped_router(tags=["statements"])


@router.get("/v1/statements/{id}", response_model=Statements, responses=errors(404))
def list_statements(id: ArtifactId, services: ServicesDep, caller: CallerDep) -> Json:
    """List what was signed of an artifact.

    DSSE envelopes around statements of the in-toto Attestation Framework, the latest first.
    """
    with services.db.reading() as session:
        return statements.list_statements(session, caller.namespace, id)


@router.get("/v1/keys", response_model=RegistryKeys)
def list_keys(services: ServicesDep, _caller: CallerDep) -> Json:
    """List the keys of the registry.

    The public keys with which it signs, and signed, the latest first.
    """
    with services.db.reading() as session:
        return signing_keys.list_keys(session)
