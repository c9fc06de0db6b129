"""The messages of API v1 about statements and signing keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from mxr.artifact import field_docs, limits
from mxr.artifact.field_docs import SHA256
from mxr.trust.attestation import Attestation
from mxr.trust.envelope import Envelope
from mxr.trust.rules import KEY_STATES, OF_REGISTRY, ROLES, KnownKey
from mxr.trust.statement import StoredStatement
from mxr.util.codec import Timestamp
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Statements:
    """The reply of `GET /v1/statements/{id}`: what was signed of an artifact, the latest first."""

    id: Annotated[str, field_docs.ARTIFACT_ID]
    items: Annotated[tuple[StoredStatement, ...], Doc("The statements.")]


@dataclass(frozen=True, slots=True)
class AddStatement:
    """Adds what somebody else signed of an artifact: each of its files must be a subject."""

    statement: Annotated[
        Mapping[str, Any],
        Doc("A DSSE envelope around a statement of in-toto, version 1, or a bundle of sigstore that has one."),
    ]

    def __post_init__(self) -> None:
        limits.check_document(self.statement, limits.MAX_STATEMENT_BYTES, limits.MAX_STATEMENT_DEPTH, "statement")

    @property
    def attestation(self) -> Attestation:
        """The statement. Raises `OtherRecordError`, `UsageError`."""
        return Attestation.read(dict(self.statement))


@dataclass(frozen=True, slots=True)
class RegistryKey:
    """A key with which a registry or one of its workers signs, or signed."""

    id: Annotated[str, Doc("The sha256 of its DER form.", pattern=SHA256)]
    public_key: Annotated[str, Doc("The public key, in PEM form.")]
    state: Annotated[str, Doc("Whether it signs, and what counts.", enum=KEY_STATES)]
    created_at: Annotated[Timestamp, Doc("When it was made known.")]
    ended_at: Annotated[Timestamp | None, Doc("Since when it is retired or revoked.")] = None
    endorsement: Annotated[Envelope | None, Doc("That a key before it belongs to the same registry.")] = None
    role: Annotated[
        str, Doc("`registry`: it signs what the registry says. `worker`: what a worker says that it built.", enum=ROLES)
    ] = OF_REGISTRY
    name: Annotated[str | None, Doc("What the operator calls the worker, or the workers, that have it.")] = None

    @property
    def known(self) -> KnownKey:
        """The key as rules have it."""
        return KnownKey(self.public_key, self.state, self.ended_at, self.role)


@dataclass(frozen=True, slots=True)
class RegistryKeys:
    """The reply of `GET /v1/keys`: the keys of a registry, the latest first."""

    registry: Annotated[str, Doc("The UUID of the registry's database.")]
    items: Annotated[tuple[RegistryKey, ...], Doc("The keys.")]
