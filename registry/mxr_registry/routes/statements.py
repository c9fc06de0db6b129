"""Routes for what a registry signed, and the keys with which it does."""

from __future__ import annotations

from fastapi import Response

from mxr.errors import Json
from mxr.protocol.access import PROMOTE
from mxr.protocol.statements import AddStatement, RegistryKeys, Statements
from mxr.trust.statement import StoredStatement
from mxr_registry.access import signing_keys
from mxr_registry.artifacts import statements
from mxr_registry.openapi import STORED, errors

from .deps import ArtifactId, CallerDep, ServicesDep, created, scoped_router

router = scoped_router(tags=["statements"])


@router.get("/v1/statements/{id}", response_model=Statements, responses=errors(404))
def list_statements(id: ArtifactId, services: ServicesDep, caller: CallerDep) -> Json:
    """List what was signed of an artifact.

    DSSE envelopes around statements of the in-toto Attestation Framework, the latest first.
    """
    with services.db.reading() as session:
        return statements.list_statements(session, caller.namespace, id)


@router.post("/v1/statements/{id}", response_model=StoredStatement, responses=STORED | errors(404, 409, 429))
def add_statement(
    id: ArtifactId, message: AddStatement, response: Response, services: ServicesDep, caller: CallerDep
) -> Json:
    """Add what somebody else signed of an artifact.

    A DSSE envelope, or a bundle of sigstore, around a statement that names all files of the artifact. It is kept,
    shown and exported; the registry verifies nothing of it, and no host takes it for proof. A publisher adds to what it
    pushed itself; the scope `promote` allows to add to each.
    """
    owner = None if caller.may((PROMOTE,)) else caller.owner
    with services.db.writing() as session:
        found, new = statements.add_statement(session, caller.namespace, id, message, owner)
    created(response, f"/v1/statements/{id}", new=new)
    return found


@router.get("/v1/keys", response_model=RegistryKeys)
def list_keys(services: ServicesDep, _caller: CallerDep) -> Json:
    """List the keys of the registry.

    The public keys with which it signs, and signed, the latest first.
    """
    with services.db.reading() as session:
        return signing_keys.list_keys(session)
