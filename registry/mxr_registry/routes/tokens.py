"""Routes for tokens: administrators make, list and revoke them; each caller sees its own principal."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from mxr.errors import Json
from mxr.protocol import access
from mxr.protocol.access import CreateToken, NewToken, Principal, SignInLink, Token, Tokens
from mxr.util.codec import Timestamp
from mxr_registry.access import sessions, tokens
from mxr_registry.database.session import now
from mxr_registry.openapi import CREATED, errors

from .deps import CallerDep, PageQuery, ServicesDep, created, scoped_router

router = scoped_router(prefix="/v1", tags=["tokens"])

TokenId = Annotated[
    str,
    Path(description="The id of the token.", json_schema_extra={"pattern": f"^{access.TOKEN_ID.pattern}$"}),
]


@router.get("/whoami")
async def get_caller(caller: CallerDep) -> Principal:
    """Show who sends this request.

    The principal and the scopes of the token, and when it expires.
    """
    expires = None if caller.expires_at is None else Timestamp(caller.expires_at)
    scopes = access.check_scopes(tuple(caller.scopes))
    return Principal(caller.principal, caller.namespace, scopes, caller.token or None, expires)


@router.post("/sign-in-links", responses=CREATED)
def create_sign_in_link(response: Response, services: ServicesDep, caller: CallerDep) -> SignInLink:
    """Make a link that signs a browser in.

    It works once and within a minute. The session sees what the token of this request allows, and ends with it.
    """
    with services.db.writing() as session:
        secret = sessions.begin(session, caller.token, link=True)
        expires_at = now(session) + sessions.LINK_SECONDS
    made = SignInLink(f"/sign-in/{secret}", Timestamp(expires_at))
    created(response, "/sign-in")
    response.headers["cache-control"] = "no-store"
    return made


@router.get("/tokens", response_model=Tokens)
def list_tokens(services: ServicesDep, page: PageQuery) -> Json:
    """List tokens, newest first.

    All tokens, also expired and revoked ones, with the time of their last use. None comes with its secret.
    """
    with services.db.reading() as session:
        return tokens.list_tokens(session, page.after, page.limit)


@router.post("/tokens", responses=CREATED | errors(409))
def create_token(message: CreateToken, response: Response, services: ServicesDep, caller: CallerDep) -> NewToken:
    """Make a token.

    The reply has the secret, which is shown only here. A principal can have several tokens: make the new one before you
    revoke the old one.
    """
    with services.db.writing() as session:
        made = tokens.create_token(session, caller.namespace, message, caller.principal)
    created(response, f"/v1/tokens/{made.token.id}")
    response.headers["cache-control"] = "no-store"
    return made


@router.delete("/tokens/{id}", responses=errors(404))
def revoke_token(id: TokenId, services: ServicesDep) -> Token:
    """Revoke a token.

    It is refused from now on by this registry, and within 2 seconds by the others on the same database.
    """
    found = services.settings.reserve.run(lambda: tokens.revoke(services.db, services.store, id))
    services.authenticator.revoke(found.id, found.revoked_at or 0.0)
    return found
