"""The two words for a program that must no longer be used, as the registry says them of an artifact.

    yanked        nothing chooses it any more; who names it, such as a lock, gets it with a warning
    quarantined   nobody gets it, wherever a copy of it lies

Source of the two: PEP 592 (yanked files) and PEP 792 (quarantined projects).
"""

from __future__ import annotations

from typing import Annotated

from mxr.errors import RecalledError
from mxr.util import codec
from mxr.util.codec import Timestamp, time_text
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from . import field_docs
from .manifest import check_sha256

YANKED, QUARANTINED = WORDS = ("yanked", "quarantined")

MAX_REASON = 300
"""Characters of a reason: one sentence, which every error and every list repeats."""

WORD_DOC = Doc("`yanked`: chosen for no request. `quarantined`: given to nobody.", enum=WORDS)
REASON_DOC = Doc("Why, in a sentence.", minLength=1, maxLength=MAX_REASON)


def check_reason(reason: str) -> str:
    """Return a reason without blanks around it. Raises `UsageError` for an empty or a long one."""
    found = reason.strip()
    if not found or len(found) > MAX_REASON:
        raise codec.refuse("reason", f"a sentence of 1 to {MAX_REASON} characters", reason)
    return found


@dataclass(frozen=True, slots=True)
class Recall:
    """What the registry says of an artifact that must no longer be used: the word, why, since when, and who said it."""

    word: Annotated[str, WORD_DOC]
    reason: Annotated[str, REASON_DOC]
    recalled_at: Annotated[Timestamp, Doc("Since when.")]
    recalled_by: Annotated[str, Doc("The principal who said it.")]

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise codec.refuse("word", f"one of {', '.join(WORDS)}", self.word)
        check_reason(self.reason)

    @property
    def refuses(self) -> bool:
        """Whether nobody gets the artifact, not even who names it."""
        return self.word == QUARANTINED

    def sentence(self, id: str) -> str:
        """Return what is to be said of the artifact, without the full stop."""
        when = time_text(self.recalled_at)
        return f"artifact {id[:12]} was {self.word} by {self.recalled_by} at {when}: {self.reason.rstrip('.')}"

    def error(self, id: str) -> RecalledError:
        """Return the error for who wants the artifact."""
        text = self.sentence(id)
        context = {"id": id, "word": self.word, "reason": self.reason}
        return RecalledError(f"{text[0].upper()}{text[1:]}.", context=context)


@dataclass(frozen=True, slots=True)
class Recalled:
    """An artifact that is, or was, recalled. It need not be published any more."""

    id: Annotated[str, field_docs.ARTIFACT_ID]
    recall: Annotated[Recall, Doc("What the registry says of it.")]

    def __post_init__(self) -> None:
        check_sha256(self.id, "id")
