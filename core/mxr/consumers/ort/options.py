"""The options that apply to ONNX Runtime only, read from the consumer options of a fetch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from .contract import Contract, choose_contract

LEVELS = ("all", "basic", "disable")
"""The optimization levels of a session. Optimizations above `basic` run after the provider has taken its nodes."""


@dataclass(frozen=True, slots=True)
class OrtSessionOptions:
    """How ONNX Runtime will run. Each field stands for the option of `mxr fetch` in brackets.

    `runtime` is a version, a generation, or the path of the provider's library (`--ort`). `python` is an interpreter
    that has this ONNX Runtime (`--ort-python`). `migraphx` is the version that the provider was built with
    (`--ort-migraphx`). `level` is the optimization level of the session (`--ort-level`). `from_bytes`: the session is
    created from bytes, not from a file (`--ort-bytes`).
    """

    runtime: str | None = None
    python: str = sys.executable
    migraphx: str | None = None
    level: str = "all"
    from_bytes: bool = False

    @classmethod
    def read(cls, options: Mapping[str, str]) -> OrtSessionOptions:
        """Read a mapping with the keys `ort`, `ort_python`, `ort_migraphx`, `ort_level`, `ort_bytes`.

        An absent or empty value selects the default.
        """
        return cls(
            runtime=options.get("ort"),
            python=options.get("ort_python") or sys.executable,
            migraphx=options.get("ort_migraphx"),
            level=options.get("ort_level") or "all",
            from_bytes=bool(options.get("ort_bytes")),
        )

    def contract(self) -> Contract:
        """The naming contract of this ONNX Runtime. Raises `UsageError` if it cannot be determined."""
        return choose_contract(self.runtime, self.migraphx)
