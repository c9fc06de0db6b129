"""What reaches the screen: one JSON document or words on standard output, messages and progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from mxr.artifact.key import Key, show
from mxr.artifact.target import show_dims
from mxr.errors import MxrError
from mxr.util.frozen import dataclass


@dataclass(frozen=True, slots=True)
class FailureStyle:
    """How a failure is shown: as a JSON document, with the traceback."""

    as_json: bool = False
    debug: bool = False


def fail(problem: MxrError, how: FailureStyle) -> int:
    """Prints one line that says what is wrong, one that says what to do; the exit number."""
    if how.debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
    if how.as_json:
        document(problem.to_json())
    note(f"mxr: {_line(problem.message)}")
    for row in problem.detail.get("nearest", ())[:3] if not how.as_json else ():
        note(f"  nearest {row['id'][:12]}: " + "; ".join(map(_difference, row["differences"])))
    note(f"     {_line(problem.hint)}") if problem.hint else None
    return problem.exit


def _line(text: str) -> str:
    return " ".join(text.split())


def _difference(row: Mapping[str, Any]) -> str:
    return f"{row['field']} asked {show(row['asked'])}, has {show(row['found'])}"


def document(value: Any) -> None:
    """Prints the one JSON document of a command."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def say(text: str = "") -> None:
    """Prints a line of the answer."""
    click.echo(text)


def note(text: str) -> None:
    """Prints a message beside the answer."""
    click.echo(text, err=True)


def table(rows: Sequence[Sequence[object]], head: Sequence[str]) -> None:
    """Prints rows in columns."""
    texts = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(head))]
    for row in texts:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def key_cells(key: Key) -> tuple[str, str, str, str]:
    """What a key is about, in the columns of a table: target, toolchain, inputs, precision."""
    return (
        key.arch or key.kind,
        f"migraphx {key.migraphx}" + (f" rocm {key.rocm}" if key.rocm else "") + _runtime(key),
        " ".join(f"{name}={show_dims(shape)}" for name, shape in key.inputs),
        "+".join(key.precision) or "fp32",
    )


def _runtime(key: Key) -> str:
    """Which ONNX Runtime a key is for, if any."""
    return f" onnxruntime {key.form.split(':')[2]}" if key.form != "whole" else ""


def size(count: int) -> str:
    """A number of bytes for a person."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def day(seconds: float) -> str:
    """A time for a person, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))


def watch(what: str) -> Callable[[int], Callable[[int], None]]:
    """A progress line on a terminal, nothing in a pipe: told the bytes to come, then each part."""

    def begin(total: int) -> Callable[[int], None]:
        if not sys.stderr.isatty():
            return lambda part: None  # noqa: ARG005 - nobody watches
        state = {"done": 0, "shown": 0.0}

        def step(part: int) -> None:
            state["done"] += part
            now = time.monotonic()
            if now - state["shown"] > 0.1 or state["done"] >= total:
                state["shown"] = now
                end = "\n" if state["done"] >= total else ""
                click.echo(f"\r{what} {size(int(state['done']))} of {size(total)}\x1b[K{end}", err=True, nl=False)

        return step

    return begin
