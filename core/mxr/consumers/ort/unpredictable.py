"""Why a name cannot be told beforehand: a value, since it is an answer and no failure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unpredictable:
    """No name can be told for this model, and why; `hint` says what to do."""

    reason: str
    hint: str = (
        "Add --on-miss wait: a worker with that ONNX Runtime runs it, and records what the provider writes. "
        "Or run it once yourself, then `mxr import --ort-cache DIR`."
    )


class PredictionRefused(Exception):
    """Carries an `Unpredictable` up to the door of the package; never leaves it."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.answer = Unpredictable(reason) if hint is None else Unpredictable(reason, hint)
