"""Signed documents: DSSE envelopes. Source: DSSE protocol and envelope, version 1 (secure-systems-lab/dsse).

What is signed is the payload with its type, byte for byte. It is parsed only after a signature was verified.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated

from mxr.errors import BadSignatureError, Json, UnknownKeyError
from mxr.util import codec
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from .keys import PublicKey, SigningKey

MAX_PAYLOAD = 4 << 20
"""Bytes of a payload."""

MAX_SIGNATURES = 8


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature, and the id of its key. The id only says which key to try."""

    keyid: Annotated[str, Doc("The id of the key: the sha256 of its DER form; others write another one, or none.")]
    sig: Annotated[str, Doc("The signature, in base64.")]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A signed document, in the form of DSSE."""

    payload: Annotated[str, Doc("The document, in base64.")]
    payloadType: Annotated[str, Doc("The media type of the document.")]
    signatures: Annotated[tuple[Signature, ...], Doc("The signatures.", minItems=1, maxItems=MAX_SIGNATURES)]

    def __post_init__(self) -> None:
        if not 1 <= len(self.signatures) <= MAX_SIGNATURES:
            raise codec.refuse("signatures", f"1 to {MAX_SIGNATURES} signatures", len(self.signatures))
        if len(self.payload) > MAX_PAYLOAD * 4 // 3 + 4:
            raise codec.refuse("payload", f"at most {MAX_PAYLOAD} bytes", len(self.payload))

    @classmethod
    def sign(cls, payload_type: str, document: Json, *keys: SigningKey) -> Envelope:
        """Return a document with the signatures of these keys."""
        payload = codec.canonical(document).encode()
        data = _signed(payload_type, payload)
        made = tuple(Signature(key.public.id, base64.b64encode(key.sign(data)).decode()) for key in keys)
        return cls(base64.b64encode(payload).decode(), payload_type, made)

    def verify(self, payload_type: str, keys: Mapping[str, PublicKey]) -> tuple[Json, frozenset[str]]:
        """Return the document and the ids of the keys that signed it, of those given.

        Signatures of other keys are ignored; one bad signature of a given key refuses all. Raises `BadSignatureError`
        and `UnknownKeyError`.
        """
        known = [each for each in self.signatures if each.keyid in keys]
        if not known:
            ids = ", ".join(sorted({each.keyid[:12] for each in self.signatures}))
            raise UnknownKeyError(f"It is signed by {ids}, which is no key that counts here.")
        payload = _decoded(self.payload)
        data = _signed(self.payloadType, payload)
        if self.payloadType != payload_type or not all(
            keys[each.keyid].verifies(_decoded(each.sig), data) for each in known
        ):
            raise BadSignatureError(f"The signature of key {known[0].keyid[:12]} is not one of this document.")
        document = codec.parse(payload, "The signed document")
        if not isinstance(document, dict):
            raise codec.refuse("", "an object", document)
        return document, frozenset(each.keyid for each in known)

    def unverified(self) -> Json:
        """Return the document without any check, to be shown. Raises `BadSignatureError`, `MalformedError`."""
        document = codec.parse(_decoded(self.payload), "The signed document")
        return document if isinstance(document, dict) else {}


def _signed(payload_type: str, payload: bytes) -> bytes:
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise BadSignatureError("The envelope is not base64.") from None
