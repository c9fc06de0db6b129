"""Why the name of a file cannot be predicted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unpredictable:
    """The answer that no name can be predicted for this model: `reason` says why, `hint` what to do.

    It is a value and not an exception, because callers handle it as one of two normal results.
    """

    reason: str
    hint: str = (
        "Add --on-miss wait: a worker with that ONNX Runtime runs the model and records the files that the provider "
        "writes. Or run the model once yourself, then publish the files with `mxr import --ort-cache DIR`."
    )


class PredictionRefused(Exception):
    """Carries an `Unpredictable` up to the functions of `prediction`, which catch it; it never leaves this package."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.answer = Unpredictable(reason) if hint is None else Unpredictable(reason, hint)
