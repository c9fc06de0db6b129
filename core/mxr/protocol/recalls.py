"""The messages of API v1 about recalled artifacts."""

from __future__ import annotations

from typing import Annotated

from mxr.artifact.recall import REASON_DOC, WORD_DOC, WORDS, Recalled, check_reason
from mxr.trust.envelope import Envelope
from mxr.util import codec
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass


@dataclass(frozen=True, slots=True)
class RecallArtifact:
    """Says of an artifact that it must no longer be used."""

    word: Annotated[str, WORD_DOC]
    reason: Annotated[str, REASON_DOC]

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise codec.refuse("word", f"one of {', '.join(WORDS)}", self.word)
        check_reason(self.reason)


@dataclass(frozen=True, slots=True)
class RecallList:
    """Everything that is recalled in a namespace. A later list has a higher `sequence`; 0: nothing ever was."""

    namespace: Annotated[str, Doc("The namespace.", examples=["default"])]
    sequence: Annotated[int, Doc("The number of the last change.", minimum=0)]
    items: Annotated[tuple[Recalled, ...], Doc("What is recalled, by id.")]
    envelope: Annotated[Envelope | None, Doc("The same, signed; null where the registry has no key.")] = None
