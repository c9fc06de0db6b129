"""The signed recall list of a namespace: what must no longer be used there, and which keys count.

A list has a number, which only grows, and an end, so that nobody keeps a new one from a host for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from mxr.artifact.recall import Recalled
from mxr.errors import Json, OtherRecordError
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr.util.frozen import dataclass

from .envelope import Envelope
from .rules import KnownKey

PAYLOAD_TYPE = "application/vnd.mxr.recalls+json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class SignedRecalls:
    """A recall list as it is signed. `registry`: the id of the registry.

    `keys`: all keys of the registry, by id: who trusts the one that signed the list can trust those before it, too.
    """

    registry: str
    namespace: str
    sequence: int
    issued_at: Timestamp
    expires_at: Timestamp
    items: tuple[Recalled, ...]
    keys: Mapping[str, KnownKey]
    v: int = VERSION

    @classmethod
    def read(cls, document: Json) -> SignedRecalls:
        """Read a signed document. Raises `OtherRecordError` for another version, and `UsageError`."""
        if document.get("v") != VERSION:
            raise OtherRecordError(f"The recall list is of version {str(document.get('v'))[:20]}, and not {VERSION}.")
        return codec.decode(cls, document, "recalls")

    @classmethod
    def unverified(cls, envelope: Envelope) -> SignedRecalls:
        """Read a list without any check of who signed it. Raises `MxrError`."""
        return cls.read(envelope.unverified())
