"""The options for the consumer `ort` (ONNX Runtime), as a typed value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from mxr.util.frozen import dataclass

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OrtOptions:
    """Which ONNX Runtime opens the model, and how."""

    ort: str | None = None
    ort_python: str | None = None
    ort_migraphx: str | None = None
    ort_level: str | None = None
    ort_bytes: bool = False

    def as_mapping(self) -> dict[str, str]:
        """The options that are set, by name, as `mxr.install.placement.Destination` takes them."""
        values = {
            "ort": self.ort,
            "ort_python": self.ort_python,
            "ort_migraphx": self.ort_migraphx,
            "ort_level": self.ort_level,
            "ort_bytes": self.ort_bytes,
        }
        return {name: str(value) for name, value in values.items() if value}


OPTIONS = (
    click.option(
        "--ort",
        metavar="ORT",
        help="For ort: the ONNX Runtime to serve: its version, its generation (A, B, B', C, D), "
        "or the path of its provider library.",
    ),
    click.option("--ort-python", metavar="PATH", help="For ort: a Python interpreter that has this ONNX Runtime."),
    click.option(
        "--ort-migraphx", metavar="VERSION", help="For ort: the MIGraphX version that the provider was built with."
    ),
    click.option(
        "--ort-level",
        metavar="LEVEL",
        help="For ort: the graph optimization level of the session: all (default), basic, disable.",
    ),
    click.option(
        "--ort-bytes", is_flag=True, help="For ort: the session opens the model from memory, not from a file."
    ),
)


def ort_options(command: F) -> F:
    """Add the options that describe an ONNX Runtime. The function receives them as one `OrtOptions` named `ort`."""
    names = ("ort", "ort_python", "ort_migraphx", "ort_level", "ort_bytes")

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        given = {name: values.pop(name) for name in names}
        return command(ort=OrtOptions(**given), **values)

    decorated = cast(F, run)
    for option in reversed(OPTIONS):
        decorated = option(decorated)
    return decorated
