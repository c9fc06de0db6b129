"""The word of a key for the next one of its registry, so that hosts that trust the one can follow to the other."""

from __future__ import annotations

from collections.abc import Mapping

from mxr.errors import OtherRecordError
from mxr.util.codec import time_text

from .envelope import Envelope
from .keys import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.mxr.key+json"
VERSION = 1


def endorse(key: PublicKey, registry: str, moment: float, by: SigningKey, role: str) -> Envelope:
    """Return the signed word of `by` that `key` belongs to the same registry. `role`: what it signs."""
    document = {"v": VERSION, "registry": registry, "key": key.id, "role": role, "created_at": time_text(moment)}
    return Envelope.sign(PAYLOAD_TYPE, document, by)


def check(endorsed: Envelope, key: PublicKey, registry: str, keys: Mapping[str, PublicKey], role: str) -> None:
    """Check that one of `keys` endorsed `key` for this registry and this role. Raises `UntrustedError`."""
    document, _ = endorsed.verify(PAYLOAD_TYPE, keys)
    said = tuple(document.get(name) for name in ("v", "registry", "key", "role"))
    if said != (VERSION, registry, key.id, role):
        raise OtherRecordError(f"The endorsement is not of key {key.id[:12]} for registry {registry}, role {role}.")
