"""The messages about tokens, and the scopes that a token can have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from mxr.artifact import field_docs, limits
from mxr.errors import UsageError
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

FETCH, ASK, PUBLISH, PROMOTE, RECALL = ["fetch", "ask", "publish", "promote", "recall"]
WORK, METRICS, ADMIN = ["work", "metrics", "admin"]

SCOPES: Mapping[str, str] = {
    FETCH: "find and list programs, and download them",
    ASK: "queue compiles, upload models, follow its own jobs and withdraw from them",
    PUBLISH: "publish programs, amend, yank and remove its own, and keep locks of its own",
    PROMOTE: "promote programs, end recalls, move tags, and change every lock",
    RECALL: "yank and quarantine programs",
    WORK: "register workers, claim and finish jobs, and read the models of the namespace",
    METRICS: "read the metrics, the queue and the list of workers",
    ADMIN: "everything, tokens included",
}
"""What a token with this scope may do."""

TOKEN = re.compile(r"mxr_([0-9a-f]{12})_[0-9a-f]{64}", re.ASCII)
"""The form of a token: its id, which is no secret, and 256 random bits in hex."""

TOKEN_ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._@/:+-]{0,99}", re.ASCII)
"""The name of a principal, such as `ci`, `alice@example.com` or `team-a/worker`."""

TOKEN_SECONDS = 90 * 86_400.0
"""How long a token is valid where nobody says."""

LOCAL = "local"
"""The principal of the tokens that a registry on a loopback address keeps for the user who runs it."""

STATES = ("valid", "expired", "revoked")


def check_scopes(scopes: tuple[str, ...], where: str = "scopes") -> tuple[str, ...]:
    """Return the scopes in the order of `SCOPES`, each once. Raises `UsageError` for none, or an unknown one."""
    for scope in scopes:
        if scope not in SCOPES:
            raise codec.refuse(where, f"some of {', '.join(SCOPES)}", scope)
    if not scopes:
        raise codec.refuse(where, f"some of {', '.join(SCOPES)}", "none")
    return tuple(scope for scope in SCOPES if scope in scopes)


def check_principal(name: str, where: str = "name") -> str:
    """Return the name of a principal that can have tokens. Raises `UsageError`."""
    if not NAME.fullmatch(name):
        raise codec.refuse(where, "a name of up to 100 letters, digits and ._@/:+-", name[:120])
    if name == LOCAL:
        raise UsageError(
            f"{where}: the name {LOCAL!r} belongs to the tokens of `mxr-registry serve` itself.",
            hint="Name the person or the service that uses the token.",
        )
    return name


@dataclass(frozen=True, slots=True)
class SignInLink:
    """A link that signs one browser in, once and within a minute, with what the token of the request allows."""

    path: Annotated[str, Doc("The path at the URL of the registry. It is a secret until it was used.")]
    expires_at: Annotated[Timestamp, Doc("When it ends unused.")]


@dataclass(frozen=True, slots=True)
class CreateToken:
    """Makes a token of the principal `name`."""

    name: Annotated[str, Doc("The person or the service.", pattern=NAME, examples=["ci"])]
    scopes: Annotated[tuple[str, ...], Doc("What it allows.", items={"enum": tuple(SCOPES)}, minItems=1)] = (FETCH,)
    expires: Annotated[
        float | None,
        Doc(
            "How long the token is valid, in seconds: 90 days, unless given. null: until it is revoked.",
            minimum=1,
            maximum=limits.MAX_TOKEN_SECONDS,
        ),
    ] = TOKEN_SECONDS

    def __post_init__(self) -> None:
        check_principal(self.name)
        check_scopes(self.scopes)
        if self.expires is not None and not 1 <= self.expires <= limits.MAX_TOKEN_SECONDS:
            raise codec.refuse("expires", f"1 to {limits.MAX_TOKEN_SECONDS} seconds", self.expires)


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret."""

    id: Annotated[str, Doc("The id of the token, which is no secret.", pattern=TOKEN_ID)]
    name: Annotated[str, Doc("The person or the service.", examples=["ci"])]
    scopes: Annotated[tuple[str, ...], Doc("What it allows.", items={"enum": tuple(SCOPES)}, minItems=1)]
    state: Annotated[str, Doc("Only a valid token is accepted.", enum=STATES)]
    created_at: Annotated[Timestamp, field_docs.CREATED_AT]
    created_by: Annotated[str, Doc("Who made it.")]
    expires_at: Annotated[Timestamp | None, Doc("When the token expires; null: never.")] = None
    used_at: Annotated[Timestamp | None, field_docs.USED_AT] = None
    used_with: Annotated[
        str | None, Doc("The program of the last use, as its `User-Agent` says.", examples=["mxr/0.1.0"])
    ] = None
    revoked_at: Annotated[Timestamp | None, Doc("When it was revoked; null: it was not.")] = None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token with its secret, which is shown once: the registry keeps only its sha256."""

    secret: Annotated[str, Doc("The token. It is shown only in this reply.", pattern=TOKEN)] = field(repr=False)
    token: Annotated[Token, Doc("The token without its secret.")]


@dataclass(frozen=True, slots=True)
class Tokens:
    """One page of tokens, newest first."""

    items: Annotated[tuple[Token, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request: the principal of its token, with what the token allows."""

    name: Annotated[str, Doc("The person or the service, or `local`.")]
    namespace: Annotated[str, Doc("The namespace that its requests work in.", examples=["default"])]
    scopes: Annotated[tuple[str, ...], Doc("What it allows.", items={"enum": tuple(SCOPES)}, minItems=1)]
    token: Annotated[str | None, Doc("The id of the token.", pattern=TOKEN_ID)]
    expires_at: Annotated[Timestamp | None, Doc("When the token expires; null: never.")] = None
