"""Reads `genai_config.json` of ONNX Runtime GenAI: which models MIGraphX runs, with which options and lengths.

There are two forms. The upstream provider is named `AMDGPU` and takes option names without a prefix. It pads the prompt
to `search.max_length` and then runs one token at a time, so a decoder needs two programs. The other provider is named
`MIGraphX` and passes its options on unchanged: `migraphx_fp16_enable`, or the same without the prefix.
Source: microsoft/onnxruntime-genai, src/config.cpp and the MIGraphX and AMDGPU provider set-up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mxr.artifact.target import Inputs, Shape, size_of
from mxr.errors import DamagedError, UsageError
from mxr.onnxfile import OnnxModel
from mxr.util.codec import fields, parse, refuse, text
from mxr.util.frozen import dataclass

PADDING = ("amdgpu", "amdgpuexecutionprovider")
FORWARDING = ("migraphx", "migraphxexecutionprovider")
PREFIX = "migraphx_"
ORDER = ("int8", "fp8", "fp16", "bf16")
"""The order in which the provider quantizes. Source: microsoft/onnxruntime, migraphx_execution_provider.cc."""

LENGTHS = ("total_sequence_length", "past_sequence_length", "max_sequence_length", "kv_sequence_length")
LARGEST = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GenaiProgram:
    """One program that a configuration needs: its model, precision, tuning, and the sizes of symbolic dims.

    `name`: decoder, embedding and so on. `phase`: prefill or decode, if one model needs both.
    """

    name: str
    path: Path
    precision: str | None = None
    tuning: str | None = None
    phase: str | None = None
    batches: tuple[int, ...] = ()
    sizes: Mapping[str, int] | None = None

    @property
    def label(self) -> str:
        """`decoder-prefill`, or the name alone."""
        return f"{self.name}-{self.phase}" if self.phase else self.name

    def inputs(self, onnx: OnnxModel, batch: int | None) -> Inputs:
        """Returns the inputs whose open dims the configuration determines. The user must give the others."""
        sizes = {**(self.sizes or {}), **({"batch_size": batch} if batch else {})}
        found: list[tuple[str, Shape]] = []
        for each in onnx.inputs:
            dims = tuple(sizes.get(dim) if isinstance(dim, str) else dim for dim in each.dims or ())
            closed = tuple(dim for dim in dims if dim is not None)
            if each.dims and len(closed) == len(dims) and closed != each.dims:
                found.append((each.name, closed))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class GenaiConfig:
    """The programs that MIGraphX runs, and notes for the user."""

    parts: tuple[GenaiProgram, ...]
    notes: tuple[str, ...] = ()


def read(path: Path) -> GenaiConfig:
    """Reads a configuration file, or the one in a folder.

    Raises `UsageError` that names the invalid field, and `DamagedError` for a file that is not JSON.
    """
    path = path / "genai_config.json" if path.is_dir() else path
    try:
        with path.open("rb") as opened:
            data = opened.read(LARGEST)
    except OSError as problem:
        raise UsageError(
            f"Cannot read {path}: {problem.strerror}.", hint="Pass the path of a genai_config.json."
        ) from None
    try:
        document = parse(data, str(path))
    except UsageError as problem:
        raise DamagedError(problem.message, hint="Pass the path of a genai_config.json.") from None
    top = dict(fields(document, ""))
    if "model" not in top:
        raise UsageError(
            f"{path}: model: this field is missing.", hint="Pass a genai_config.json of GenAI 0.4 or newer."
        )
    length = _length(top.get("search"))
    parts, notes = [], []
    for where, name, part in _models(top["model"]):
        provider, options, at = _options(part, where)
        if provider is None:
            notes.append(f"{where} does not use MIGraphX: no program is fetched for it.")
            continue
        file = _text(part["filename"], f"{where}.filename")
        parts += _parts(name, path.parent / file, _Chosen(provider, options, at), length)
    if not parts:
        raise UsageError(
            f"No model in {path} uses MIGraphX.",
            hint="Add an entry AMDGPU or MIGraphX to provider_options, for example"
            ' model.decoder.session_options.provider_options = [{"AMDGPU": {}}].',
        )
    return GenaiConfig(tuple(parts), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The provider of a model in lower case, its options without prefix, and the path of the options."""

    provider: str
    options: Mapping[str, Any]
    where: str


def _models(model: object) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields each object below `model` with a file name, including those of a pipeline: path, name, object."""
    for name, value in fields(model, "model"):
        where = f"model.{name}"
        if not isinstance(value, dict):
            continue
        if "filename" in value:
            yield where, name, value
        steps = value.get("pipeline", [])
        if not isinstance(steps, list):
            raise refuse(f"{where}.pipeline", "a list", steps)
        for index, step in enumerate(steps):
            for inner, part in fields(step, f"{where}.pipeline[{index}]"):
                at = f"{where}.pipeline[{index}].{inner}"
                rows = dict(fields(part, at))
                if "filename" not in rows:
                    raise refuse(f"{at}.filename", "the name of an ONNX file", None)
                yield at, f"{name}-{inner}", {"session_options": value.get("session_options", {}), **rows}


def _options(part: Mapping[str, Any], where: str) -> tuple[str | None, Mapping[str, Any], str]:
    """Returns the MIGraphX provider of a model in lower case, its options without prefix, and their path."""
    at = f"{where}.session_options"
    listed = dict(fields(part.get("session_options", {}), at)).get("provider_options", [])
    at += ".provider_options"
    if not isinstance(listed, list):
        raise refuse(at, "a list", listed)
    for index, row in enumerate(listed):
        for name, options in fields(row, f"{at}[{index}]"):
            if name.lower() in (*PADDING, *FORWARDING):
                here = f"{at}[{index}].{name}"
                found = {key.removeprefix(PREFIX): value for key, value in fields(options, here)}
                return name.lower(), found, here
    return None, {}, at


def _parts(name: str, path: Path, chosen: _Chosen, length: int | None) -> list[GenaiProgram]:
    on = [word for word in ORDER if _on(chosen, f"{word}_enable")]
    if {"fp16", "bf16"} <= set(on):
        raise UsageError(
            f"{chosen.where}: fp16_enable and bf16_enable disable each other.", hint="Enable only one of them."
        )
    tuning = "exhaustive" if _on(chosen, "exhaustive_tune") else None
    whole = GenaiProgram(name, path, "+".join(on) or None, tuning, batches=_batches(chosen))
    if chosen.provider not in PADDING or name != "decoder" or length is None:
        return [whole]
    lengths = dict.fromkeys(LENGTHS, length)
    return [
        replace(whole, phase=phase, sizes={**lengths, "sequence_length": size})
        for phase, size in (("prefill", length), ("decode", 1))
    ]


def _on(chosen: _Chosen, name: str) -> bool:
    value = chosen.options.get(name, "0")
    words = {"1": True, "true": True, "0": False, "false": False}
    if str(value).lower() not in words:
        raise refuse(f"{chosen.where}.{name}", "1, 0, true or false", value)
    return words[str(value).lower()]


def _batches(chosen: _Chosen) -> tuple[int, ...]:
    value = chosen.options.get("compile_batches", "")
    where = f"{chosen.where}.compile_batches"
    found = [part.strip() for part in _text(value, where).split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in found):
        raise refuse(where, "numbers joined by commas", value)
    return tuple(sorted({size_of(int(part[:12]), where) for part in found}))


def _length(search: object) -> int | None:
    value = dict(fields(search, "search")).get("max_length") if search is not None else None
    return None if value is None else size_of(value, "search.max_length")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise refuse(where, "a string", value)
    if os.sep in value and Path(value).is_absolute():
        raise refuse(where, "a path relative to the configuration", value)
    return text(value, where)
