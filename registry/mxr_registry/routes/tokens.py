"""Routes for tokens: administrators make, list and revoke them; each caller sees its own principal."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Request, Response

from mxr.protocol import access
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr_registry.access import tokens
from mxr_registry.access.authentication import Authenticator
from mxr_registry.database.paging import MAX_ROWS
from mxr_registry.openapi.operations import LOCATION, Success, operation

from .bodies import BodyDep, decode_body
from .deps import AfterQuery, CallerDep, LimitQuery, ServicesDep, reply, scoped_router

router = scoped_router(prefix="/v1", tags=["tokens"])

TokenId = Annotated[
    str,
    Path(description="The id of the token.", json_schema_extra={"pattern": f"^{access.TOKEN_ID.pattern}$"}),
]


@router.get(
    "/whoami",
    summary="Show who sends this request",
    **operation("get_caller", {200: Success("The principal of the token.", access.Principal)}),
)
async def whoami(caller: CallerDep) -> Response:
    """The principal and the scopes of the token, and when it expires."""
    expires = None if caller.expires_at is None else Timestamp(caller.expires_at)
    scopes = access.check_scopes(tuple(caller.scopes))
    found = access.Principal(caller.principal, caller.namespace, scopes, caller.token or None, expires)
    return reply(codec.canonical(codec.encode(found)))


@router.get(
    "/tokens",
    summary="List tokens, newest first",
    **operation("list_tokens", {200: Success("One page.", access.Tokens)}),
)
def list_tokens(services: ServicesDep, after: AfterQuery = None, limit: LimitQuery = MAX_ROWS) -> Response:
    """All tokens, also expired and revoked ones, with the time of their last use. None comes with its secret."""
    with services.db.reading() as session:
        return reply(tokens.list_tokens(session, after, limit))


@router.post(
    "/tokens",
    summary="Make a token",
    **operation(
        "create_token",
        {201: Success("The token with its secret, which is shown only here.", access.NewToken, LOCATION)},
        takes=access.CreateToken,
        errors=(409,),
    ),
)
def create_token(body: BodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """A principal can have several tokens: make the new one before you revoke the old one."""
    message = decode_body(access.CreateToken, body)
    with services.db.writing() as session:
        made = tokens.create_token(session, caller.namespace, message, caller.principal)
    response = reply(codec.canonical(codec.encode(made)), HTTPStatus.CREATED)
    response.headers["location"] = f"/v1/tokens/{made.token.id}"
    response.headers["cache-control"] = "no-store"
    return response


@router.delete(
    "/tokens/{id}",
    summary="Revoke a token",
    **operation("revoke_token", {200: Success("The revoked token.", access.Token)}, errors=(404,)),
)
def revoke_token(id: TokenId, request: Request, services: ServicesDep) -> Response:
    """It is refused from now on by this registry, and within 2 seconds by the others on the same database."""
    authenticator = request.app.state.authenticator
    assert isinstance(authenticator, Authenticator)
    found = tokens.revoke(services.db, services.store, id)
    authenticator.revoke(found.id, found.revoked_at or 0.0)
    return reply(tokens.token_json(found))
