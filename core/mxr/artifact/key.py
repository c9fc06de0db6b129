"""The key of an artifact: the facts that must match exactly, their canonical text, and its digest.

A request and every artifact that can serve it have the same digest, so that resolving is one indexed lookup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from typing import Annotated, Any

import mxr.facts as facts
from mxr.errors import UsageError
from mxr.facts import stated
from mxr.util.codec import JsonForm, canonical, encode_fields, fields, refuse, schema_of_form, text
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from . import field_docs, limits, target
from .compile_settings import check_env, check_options
from .field_docs import SHA256
from .target import BASE_ARCH, FAMILY_OF, GENERIC_ARCH, KINDS, VENDORS, DynamicDim, Inputs

KEY_VERSION = 2

MODEL_PREFIX = "sha256:"
"""What the identity of a model begins with."""

MODEL = re.compile(r"sha256:[0-9a-f]{64}")
MODEL_SHORT = re.compile(r"sha256:[0-9a-f]{12,64}")
"""A prefix of an identity that command lines accept."""

MODEL_DOC = Doc("The identity of the model.", pattern=MODEL, examples=[f"sha256:{field_docs.SHA}"])

FORM = re.compile(r"whole|ort:[0-9A-Za-z._:=+,-]{1,200}")
FORM_DOC = Doc("`whole` for one program, or the form of a set recorded by ONNX Runtime.", pattern=FORM)
CALIBRATION_DOC = Doc("The sha256 of the calibration data; for int8 and fp8.", pattern=SHA256)

OPEN = tuple(fact.name for fact in facts.FACTS if fact.place == facts.KEY and fact.has(facts.OPEN, facts.HARDWARE))
"""Facts of a key that a request can leave open, with the dims of inputs; a lock also decides the target."""

FIXED = ("model", "form", *(fact.name for fact in facts.FACTS if fact.place == facts.KEY and fact.name not in OPEN))
"""Facts of a key that are never open."""

TARGET = tuple(fact.name for fact in facts.FACTS if fact.place == facts.KEY and fact.has(facts.HARDWARE))
"""The facts of a key that tell where its programs run: target and versions."""

GPU_FIELDS = ("vendor", "arch", "rocm")
"""Not part of the key of a `ref` program: the reference target runs on any CPU."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field in which two values differ, as JSON values. `found` is None where there is no value."""

    field: str
    asked: Any
    found: Any

    def to_json(self) -> dict[str, Any]:
        """Return `{"field","asked","found"}`."""
        return {"field": self.field, "asked": self.asked, "found": self.found}

    def __str__(self) -> str:
        return f"{self.field}: requested {value_text(self.asked)}, found {value_text(self.found)}"


def value_text(value: object) -> str:
    """Return a JSON value as text for people: strings without quotes, None as "unknown"."""
    return value if isinstance(value, str) else "unknown" if value is None else canonical(value)


IN_ORDER = ("v", "model", "form", *(fact.name for fact in facts.FACTS if fact.place == facts.KEY))
"""The fields of a key in the order of its JSON form."""


def _names_form() -> JsonForm:
    return JsonForm(Mapping[str, str], lambda value, _: tuple(value.items()), dict)


COMMON_FORMS = {
    "precision": JsonForm(str, lambda value, _: target.parse_precision(value), target.show_precision),
    "env": _names_form(),
    "options": _names_form(),
}
"""The JSON forms that keys and partial requests share."""


@dataclass(frozen=True, slots=True)
class Key:
    """The facts that must match exactly. Any order of `inputs`, `env` and `options` is accepted and stored in
    canonical form.

    `inputs`: (name, shape) pairs, sorted by name. `precision`: empty for fp32. Raises `UsageError`.
    """

    json_forms = COMMON_FORMS | {
        "inputs": JsonForm(
            Mapping[str, Any],
            lambda value, where: inputs_from_json(value, where),
            lambda inputs: {name: [target.dim_to_json(dim) for dim in shape] for name, shape in inputs},
        )
    }
    json_needed = ("offload_copy", "fast_math")
    __get_pydantic_core_schema__ = classmethod(schema_of_form)

    model: Annotated[str, MODEL_DOC]
    kind: Annotated[str, field_docs.KIND]
    migraphx: Annotated[str, field_docs.MIGRAPHX]
    inputs: Annotated[Inputs, field_docs.INPUTS]
    vendor: Annotated[str | None, field_docs.VENDOR] = None
    arch: Annotated[str | None, field_docs.ARCH] = None
    rocm: Annotated[str | None, field_docs.ROCM] = None
    form: Annotated[str, FORM_DOC] = "whole"
    precision: Annotated[tuple[str, ...], field_docs.PRECISION] = ()
    calibration: Annotated[str | None, CALIBRATION_DOC] = None
    offload_copy: Annotated[bool, field_docs.OFFLOAD_COPY] = True
    fast_math: Annotated[bool, field_docs.FAST_MATH] = True
    env: Annotated[tuple[tuple[str, str], ...], field_docs.ENV] = ()
    options: Annotated[tuple[tuple[str, str], ...], field_docs.OPTIONS] = ()
    v: Annotated[int, Doc("The version of the form.", minimum=KEY_VERSION, maximum=KEY_VERSION)] = KEY_VERSION

    def __post_init__(self) -> None:
        if self.v != KEY_VERSION:
            raise refuse("v", f"key version {KEY_VERSION}", self.v)
        for name, allowed in (("model", MODEL), ("form", FORM)):
            if not allowed.fullmatch(getattr(self, name)):
                raise refuse(name, f"the form {allowed.pattern}", getattr(self, name))
        if self.kind not in KINDS:
            raise refuse("kind", "gpu or ref", self.kind)
        put = object.__setattr__
        put(self, "inputs", _canonical_inputs(self.inputs))
        put(self, "env", tuple(sorted(self.env)))
        put(self, "options", tuple(sorted(self.options)))
        if self.kind == "ref":
            for name in GPU_FIELDS:
                put(self, name, None)
        else:
            self._check_gpu()
        self._check_versions()
        self._check_options()

    def _check_gpu(self) -> None:
        if self.vendor is None:
            object.__setattr__(self, "vendor", "amd")
        if self.vendor not in VENDORS:
            raise refuse("vendor", "amd or hygon", self.vendor)
        if self.arch is None:
            raise UsageError("The key has no arch.", hint=f"Add it, for example {stated('arch', 'gfx908')}.")
        if not (BASE_ARCH.fullmatch(self.arch) or GENERIC_ARCH.fullmatch(self.arch)):
            raise refuse("arch", "a base arch such as gfx908", self.arch)
        if self.rocm is None:
            example = "25.04" if self.vendor == "hygon" else "7.2"
            raise UsageError(
                f"The key has no {target.userland(self.vendor)} version.",
                hint=f"Add it, for example {stated('rocm', example)}.",
            )

    def _check_versions(self) -> None:
        zeros = self.vendor == "hygon"
        for name, version in (("migraphx", self.migraphx), ("rocm", self.rocm)):
            if version is not None and target.split_version(version, name, zeros=zeros) != (version, None):
                raise refuse(name, "MAJOR.MINOR", version)

    def _check_options(self) -> None:
        for name in ("offload_copy", "fast_math"):
            if not isinstance(getattr(self, name), bool):
                raise refuse(name, "true or false", getattr(self, name))
        if target.parse_precision(target.show_precision(self.precision)) != self.precision:
            raise refuse("precision", "fp32, or precisions joined by +", list(self.precision))
        if self.calibration is not None:
            if not SHA256.fullmatch(self.calibration):
                raise refuse("calibration", "a sha256", self.calibration)
            if not set(target.CALIBRATED) & set(self.precision):
                raise UsageError(
                    "Calibration data requires the precision int8 or fp8.",
                    hint=f"Omit {stated('calibration')}, or add {stated('precision', 'int8')}.",
                )
        check_env(self.env)
        check_options(self.options)

    def to_json(self) -> dict[str, Any]:
        """Return the key as a JSON object with all fields; a `ref` key has no vendor, arch and rocm."""
        return encode_fields(self, (name for name in IN_ORDER if self.kind != "ref" or name not in GPU_FIELDS))

    @property
    def canonical(self) -> str:
        """The canonical text: JSON with sorted keys and without white space."""
        return canonical(self.to_json())

    @property
    def digest(self) -> str:
        """The sha256 of the canonical text in lower-case hex."""
        return sha256(self.canonical.encode()).hexdigest()

    @property
    def fixed_digest(self) -> str:
        """The digest of the facts that a request never leaves open: all but toolchain, inputs and flags."""
        shared = {name: getattr(self, name) for name in FIXED}
        return fixed_digest(shared, self.kind, self.vendor, self.arch)

    @property
    def uncalibrated(self) -> tuple[str, ...]:
        """The precisions that need calibration data, if the key names none."""
        return () if self.calibration else tuple(word for word in self.precision if word in target.CALIBRATED)

    def generic(self) -> Key | None:
        """Return the key for the generic arch of this arch's family, or None if it has no family."""
        family = FAMILY_OF.get(self.arch or "") if self.vendor == "amd" else None
        return replace(self, arch=family) if family else None

    def differences(self, found: Key) -> tuple[Difference, ...]:
        """Return each field in which `found` differs from this key, in the order of the key; inputs by name."""
        asked_all, found_all = _flat(self.to_json()), _flat(found.to_json())
        names = [*asked_all, *(name for name in found_all if name not in asked_all)]
        pairs = ((name, asked_all.get(name), found_all.get(name)) for name in names)
        return tuple(Difference(name, left, right) for name, left, right in pairs if left != right)


SEPARATE_MAJOR = 10
"""The first major release of ROCm whose MIGraphX is released apart from the core.

Source: rocm.docs.amd.com, AI ecosystem. That a minor release runs what was built for another one is AMD's intent and no
tested fact: it must be allowed.
"""

MINORS = range(32)
"""The minor releases that are looked for. ROCm 7 had fourteen."""


def other_releases(vendor: str | None, rocm: str | None) -> tuple[str, ...]:
    """Return the releases of ROCm with the same major whose programs `--allow rocm` accepts; none before ROCm 10."""
    major, _, minor = (rocm or "").partition(".")
    if vendor != "amd" or not major.isdecimal() or int(major) < SEPARATE_MAJOR:
        return ()
    return tuple(f"{major}.{each}" for each in MINORS if str(each) != minor)


def _canonical_inputs(inputs: Inputs) -> Inputs:
    """Return the inputs sorted by name, with canonical dims: a range of one size is that size; sorted optimals."""
    limits.check_inputs(inputs, "inputs")
    ordered = sorted(inputs, key=lambda pair: pair[0])
    for (left, _), (right, _) in pairwise(ordered):
        if left == right:
            raise refuse("inputs", "unique input names", left)
    return tuple(
        (
            text(name, "inputs"),
            tuple(
                target.dim_from_json(target.dim_to_json(dim), f"inputs.{name}", place)
                for place, dim in enumerate(shape)
            ),
        )
        for name, shape in ordered
    )


def inputs_from_json(document: object, where: str) -> Inputs:
    """Return inputs from `{name: [dims]}`. Raises `UsageError`."""
    found = []
    rows = fields(document, where)
    limits.check_inputs(rows, where)
    for name, dims in rows:
        assert isinstance(dims, (list, tuple))
        shape = tuple(target.dim_from_json(dim, f"{where}.{name}", place) for place, dim in enumerate(dims))
        found.append((name, shape))
    return tuple(found)


def _flat(document: dict[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, value in document.items():
        if name in ("inputs", "env", "options"):
            rows |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            rows[name] = value
    return rows


def fixed_digest(shared: Mapping[str, Any], kind: str, vendor: str | None, arch: str | None) -> str:
    """Return the sha256 of facts that a request never leaves open. `shared`: those apart from the target."""
    document = dict(shared)
    return sha256(canonical(document | {"kind": kind, "vendor": vendor, "arch": arch}).encode()).hexdigest()


def check_model(value: str, where: str = "model") -> str:
    """Return `value` if it is the identity of a model. Raises `UsageError`."""
    if not MODEL.fullmatch(value):
        raise refuse(where, "the identity of a model: sha256: and 64 hex digits", value)
    return value


def dynamic(inputs: Inputs) -> bool:
    """Return whether any input has a dynamic dim."""
    return any(isinstance(dim, DynamicDim) for _, shape in inputs for dim in shape)


def key_words(key: Key) -> tuple[str, str, str, str]:
    """Return a key for people: target, toolchain, inputs, precision."""
    runtime = f" onnxruntime {key.form.split(':')[2]}" if key.form != "whole" else ""
    rocm = f" {target.userland(key.vendor).lower()} {key.rocm}" if key.rocm else ""
    return (
        key.arch or key.kind,
        f"migraphx {key.migraphx}{rocm}{runtime}",
        " ".join(f"{name}={target.show_dims(shape)}" for name, shape in key.inputs),
        target.show_precision(key.precision) + (" uncalibrated" if key.uncalibrated else ""),
    )
