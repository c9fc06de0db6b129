"""Statements of others about the same files: DSSE envelopes, and bundles of sigstore. Nothing of them is verified here.

Source of the bundle: sigstore/protobuf-specs, sigstore_bundle.proto: `mediaType`, `verificationMaterial` (a certificate
or a key, entries of a log) and `dsseEnvelope`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mxr.errors import Json, OtherRecordError
from mxr.util import codec
from mxr.util.frozen import dataclass

from .envelope import Envelope
from .statement import PAYLOAD_TYPE, STATEMENT, subjects_of

SIGSTORE = "application/vnd.dev.sigstore.bundle"
"""How the media types of its bundles begin."""

MAX_KIND = 100


@dataclass(frozen=True, slots=True)
class Attestation:
    """What somebody else signed. `bundle`: the whole document, if it is a bundle of sigstore. `kind`: what it says."""

    envelope: Envelope
    bundle: Mapping[str, Any] | None
    kind: str
    sha256s: frozenset[str]

    @classmethod
    def read(cls, document: Json) -> Attestation:
        """Read an envelope or a bundle. Raises `OtherRecordError` for one without a statement, and `UsageError`."""
        kind = document.get("mediaType")
        bundle = document if isinstance(kind, str) and kind.startswith(SIGSTORE) else None
        envelope = codec.decode(Envelope, _envelope(document if bundle is None else document.get("dsseEnvelope")))
        said = envelope.unverified()
        if (envelope.payloadType, said.get("_type")) != (PAYLOAD_TYPE, STATEMENT):
            raise OtherRecordError("It is no statement of the in-toto Attestation Framework, version 1.")
        predicate = said.get("predicateType")
        if not isinstance(predicate, str) or not 1 <= len(predicate) <= MAX_KIND or not predicate.isprintable():
            raise codec.refuse("predicateType", f"a type of 1 to {MAX_KIND} characters", predicate)
        return cls(envelope, bundle, predicate, frozenset(subjects_of(said).values()))

    def refuse_other(self, id: str, sha256s: Iterable[str]) -> None:
        """Raise `OtherRecordError` unless each file of an artifact is a subject."""
        if missing := set(sha256s) - self.sha256s:
            raise OtherRecordError(
                f"The statement does not name all files of artifact {id[:12]}: {min(missing)[:12]} is no subject.",
                context={"id": id},
            )


def _envelope(value: object) -> Any:
    """An envelope in which signatures may lack the id of their key."""
    if not isinstance(value, dict) or not isinstance(value.get("signatures"), list):
        raise codec.refuse("", "a DSSE envelope, or a bundle of sigstore that has one", type(value).__name__)
    return {
        **value,
        "signatures": [{"keyid": "", **row} if isinstance(row, dict) else row for row in value["signatures"]],
    }
