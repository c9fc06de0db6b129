"""The options that apply to ONNX Runtime only, read from the consumer options of a fetch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from mxr.errors import UsageError

from .contract import Contract, choose

PREDICT = ("proven", "unproven")
"""The values of `ort_predict`. `proven`: predict names only for generations whose prediction was tested against the
real provider. `unproven`: predict for the others as well."""


@dataclass(frozen=True, slots=True)
class OrtSessionOptions:
    """How ONNX Runtime will run. Each field stands for the option of `mxr fetch` in brackets.

    `runtime` is a version, a generation, or the path of the provider's library (`--ort`). `python` is an interpreter
    that has this ONNX Runtime (`--ort-python`). `migraphx` is the version that the provider was built with
    (`--ort-migraphx`). `level` is the optimization level of the session (`--ort-level`). `from_bytes`: the session is
    created from bytes, not from a file (`--ort-bytes`). `unproven`: predict names for generations whose prediction was
    never tested against their provider (`--ort-predict unproven`).
    """

    runtime: str | None = None
    python: str = sys.executable
    migraphx: str | None = None
    level: str = "all"
    from_bytes: bool = False
    unproven: bool = False

    @classmethod
    def read(cls, options: Mapping[str, str]) -> OrtSessionOptions:
        """Reads a mapping with the keys `ort`, `ort_python`, `ort_migraphx`, `ort_level`, `ort_bytes`, `ort_predict`.

        An absent or empty value selects the default. Raises `UsageError` for an unknown value of `ort_predict`.
        """
        predict = options.get("ort_predict") or "proven"
        if predict not in PREDICT:
            raise UsageError(
                f"ort_predict is {predict!r}; it must be {' or '.join(PREDICT)}.",
                hint="Use --ort-predict unproven, or leave the option out.",
            )
        return cls(
            runtime=options.get("ort"),
            python=options.get("ort_python") or sys.executable,
            migraphx=options.get("ort_migraphx"),
            level=options.get("ort_level") or "all",
            from_bytes=bool(options.get("ort_bytes")),
            unproven=predict == "unproven",
        )

    def contract(self) -> Contract:
        """The naming contract of this ONNX Runtime. Raises `UsageError` if it cannot be determined."""
        return choose(self.runtime, self.migraphx)
