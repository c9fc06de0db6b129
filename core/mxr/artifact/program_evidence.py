"""What a program file tells about its key: contradictions refuse it, what the file cannot tell stays a statement.

Absent evidence is unknown, never a contradiction. The description is the document of `mxr inspect --json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mxr.errors import Usage

from . import target
from .key import Difference, Key, inputs_from_json
from .qualities import Qualities
from .target import GfxArch, Inputs

Description = Mapping[str, Any]


def contradictions(key: Key, qualities: Qualities, description: Description) -> tuple[Difference, ...]:
    """Each field of the key or the qualities that the file says otherwise: as asked, and as found in the file."""
    found: list[Difference] = []
    if description.get("compiled") is False:
        found.append(Difference("compiled", True, False))
    found += _targets(key, description)
    found += _versions(key, qualities, description)
    found += _archs(key, qualities, description)
    if key.form == "whole":  # the inputs of a partition are values inside the model
        found += _inputs(key, description)
    found += _flags(key, description)
    return tuple(found)


def stated(key: Key, qualities: Qualities, description: Description) -> tuple[str, ...]:
    """The fields that rest on the publisher's word alone, because the file does not tell them."""
    told = {"kind": bool(description.get("targets")), "migraphx": bool(description.get("migraphx"))}
    told["inputs"] = bool(description.get("inputs"))
    if key.kind == "gpu":
        archs = archs_of(description)
        told |= {"vendor": description.get("flavour") == "hygon", "arch": bool(archs), "rocm": False}
        told["offload_copy"] = description.get("offload_copy") is not None
        for name in target.FEATURES:
            if target.capable(key.arch or "", name):
                told[name] = bool(archs)
    else:
        told["offload_copy"] = False
    told |= {"model": False, "precision": False, "fast_math": False, "tuning": False}
    for name in ("num_cu", "chiplets", "rocm_patch", "build", "latency_ms", "max_error", "real_arch"):
        if getattr(qualities, name) is not None:
            told[name] = False
    told |= {name: False for name in ("calibration", "env") if getattr(key, name)}
    return tuple(sorted(name for name, known in told.items() if not known))


def archs_of(description: Description) -> tuple[GfxArch, ...]:
    """The archs of the file's code objects; those that this version of mxr cannot read are left out."""
    found = []
    for text in description.get("archs") or ():
        try:
            found.append(GfxArch.parse(text))
        except Usage:
            continue
    return tuple(found)


def inputs_of(description: Description) -> Inputs:
    """The inputs whose shapes the file tells in full; one with a symbol or an odd size for a dim is left out."""
    found: list[tuple[str, target.Shape]] = []
    for name, row in (description.get("inputs") or {}).items():
        try:
            found += inputs_from_json({name: _dims(row)}, "inputs")
        except Usage:
            continue
    return tuple(found)


def _dims(row: object) -> object:
    return row.get("dims") if isinstance(row, Mapping) else None


def _targets(key: Key, description: Description) -> list[Difference]:
    targets = list(description.get("targets") or ())
    return [Difference("kind", key.kind, "+".join(targets))] if targets and targets != [key.kind] else []


def _versions(key: Key, qualities: Qualities, description: Description) -> list[Difference]:
    found = []
    version = description.get("migraphx")
    if version and not (version + ".").startswith(key.migraphx + "."):
        found.append(Difference("migraphx", key.migraphx, version))
    elif version and version.count(".") >= 2 and not _same_patch(qualities.migraphx_patch, version):
        found.append(Difference("migraphx_patch", qualities.migraphx_patch, version))
    flavour = description.get("flavour")
    if key.kind == "gpu" and flavour and (flavour == "hygon") != (key.vendor == "hygon"):
        found.append(Difference("vendor", key.vendor, "hygon" if flavour == "hygon" else "amd"))
    return found


def _same_patch(stated_patch: str | None, version: str) -> bool:
    """Whether MAJOR.MINOR.PATCH agree: the file never tells what comes behind them."""
    return stated_patch is None or _three_numbers(stated_patch) == _three_numbers(version)


def _three_numbers(version: str) -> list[str]:
    return re.findall(r"[0-9]+", version)[:3]


def _archs(key: Key, qualities: Qualities, description: Description) -> list[Difference]:
    archs = archs_of(description)
    texts = "+".join(map(str, archs))
    if not archs or key.kind != "gpu":
        return [Difference("arch", None, texts)] if archs else []
    if any(arch.base != key.arch for arch in archs):
        return [Difference("arch", key.arch, texts)]
    found = []
    for name in target.FEATURES:
        signs = {getattr(arch, name) or "any" for arch in archs}
        built_for = strictest(signs)
        if built_for not in ("any", getattr(qualities, name)):
            found.append(Difference(name, getattr(qualities, name), built_for or "+ and -"))
    return found


def strictest(signs: set[str]) -> str | None:
    """What several code objects need together: the one explicit sign, `any`, or None when `+` meets `-`."""
    explicit = signs - {"any"}
    return None if len(explicit) > 1 else next(iter(explicit), "any")


def _inputs(key: Key, description: Description) -> list[Difference]:
    rows = description.get("inputs") or {}
    if not rows:
        return []
    asked = {name: [target.dim_to_json(dim) for dim in shape] for name, shape in key.inputs}
    found = {name: [target.dim_to_json(dim) for dim in shape] for name, shape in inputs_of(description)}
    foreign = [Difference(f"inputs.{name}", None, _dims(rows[name])) for name in sorted({*rows} - {*asked})]
    # MIGraphX drops inputs that nothing uses, so one that only the key has is no contradiction.
    both = sorted({*found} & {*asked})
    other = [Difference(f"inputs.{name}", asked[name], found[name]) for name in both if asked[name] != found[name]]
    return foreign + [each for each in other if not is_scalar(each.asked, each.found)]


def is_scalar(asked: object, found: object) -> bool:
    """Whether a scalar is asked, and one element found: MIGraphX keeps it so.

    Source: MIGraphX, src/onnx/onnx_parser.cpp, parse_type.
    """
    return (asked, found) == ([], [1])


def _flags(key: Key, description: Description) -> list[Difference]:
    found = []
    offload = description.get("offload_copy")
    if key.kind == "gpu" and offload is not None and offload != key.offload_copy:
        found.append(Difference("offload_copy", key.offload_copy, offload))
    return found + _precision(key, description)


def _precision(key: Key, description: Description) -> list[Difference]:
    """A precision that was asked for leaves its types in a program that has what it reduces; elsewhere, nothing tells.

    On a GPU only fp16 is sure to: bf16 and fp8 fall back to float where the arch lacks them, and int8 may show in the
    kernels alone. Source: MIGraphX, src/targets/gpu/target.cpp, the passes that eliminate unsupported data types.
    """
    seen = description.get("precisions") or ()
    absent = absent_precisions(key.kind, key.precision, description)
    return [Difference("precision", "+".join(key.precision), "+".join(seen))] if absent else []


def absent_precisions(kind: str, words: tuple[str, ...], description: Description) -> list[str]:
    """Those of the precisions that would have left their types in a program of this kind, and have not."""
    seen = description.get("precisions")
    is_sure = _is_sure_on_ref if kind == "ref" else _is_sure_on_gpu
    return [word for word in words if word not in seen and is_sure(word, description)] if seen else []


_REDUCED = {
    **dict.fromkeys(("fp16", "bf16", "int8"), ("dot", "convolution")),
    "fp8": ("convolution", "ref::softmax"),
}
"""Operators that a precision never leaves as they were. Programs that only move numbers lose their conversions again,
the `dot`s of a recurrent layer come after fp8 was applied, and of int4w not every weight is worth it.
Source: what MIGraphX 2.16 does with some hundred small graphs, tests/core/program/test_real_migraphx.py."""


def _is_sure_on_ref(word: str, description: Description) -> bool:
    """A model of halves stays as it is when bf16 is asked for: only fp32 and fp64 are reduced to 16 bits."""
    widths = {"half_type", "float_type", "double_type"} if word in ("int8", "fp8") else {"float_type", "double_type"}
    has_numbers = bool(widths & {*(description.get("types") or ())})
    return has_numbers and any(name in (description.get("operators") or ()) for name in _REDUCED.get(word, ()))


def _is_sure_on_gpu(word: str, description: Description) -> bool:
    """Only fp16 is, where matrices are multiplied and nothing is in 8 bits, whose kernels may hide the halves."""
    if word != "fp16" or {"int8", "fp8"} & {*(description.get("precisions") or ())}:
        return False
    if (description.get("kernels") or {}).get("mlir"):
        return True
    return any(word in name for name in description.get("operators") or () for word in ("dot", "conv", "gemm"))
