"""Reads `genai_config.json` of ONNX Runtime GenAI: which models MIGraphX runs, with which options and lengths.

The provider has two names. `AMDGPU` is GenAI's own: it pads the prompt to `search.max_length` and then runs one token
at a time. `MIGraphX` passes its options on to ONNX Runtime unchanged and pads nothing. An entry of `provider_options`
has two forms: `{"AMDGPU": {...}}`, which GenAI reads, and `{"name": "MIGraphX", "options": {...}}`, which the
documentation of a fork shows.
Source: microsoft/onnxruntime-genai, src/config.cpp, src/generators.cpp, src/models/kv_cache.cpp and
src/amdgpu/session_options.cpp; Looong01/onnxruntime-genai-migraphx, docs/how-to-build-migraphx.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from mxr.artifact.target import Inputs, Shape, size_of
from mxr.errors import DamagedError, UsageError
from mxr.facts import stated
from mxr.onnxfile import OnnxModel
from mxr.util.codec import fields, parse, refuse, text
from mxr.util.frozen import dataclass

PADDING = ("amdgpu", "amdgpuexecutionprovider")
FORWARDING = ("migraphx", "migraphxexecutionprovider")
PREFIX = "migraphx_"
ORDER = ("int8", "fp8", "fp16", "bf16")
"""The order in which the provider quantizes. Source: microsoft/onnxruntime, migraphx_execution_provider.cc."""

TUNINGS = {"eager": "eager", "0": "eager", "balanced": None, "50": None, "maximum": "exhaustive", "100": "exhaustive"}
"""The values of `compute_mode`. Source: onnxruntime/onnxruntime-ep-amdgpu, docs/MIGraphX-ExecutionProvider.md."""

OWN_OPTIONS = "session_options"
INHERITING = ("encoder", "vision", "speech", "embedding")
"""Models without session options of their own use those of the decoder. Source: onnxruntime-genai, src/models: the
calls of CreateSessionOptionsFromConfig in whisper.cpp, marian.cpp and multi_modal.cpp."""

MAX_BYTES = 16 * 1024 * 1024


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
        """Return the inputs whose open dims the configuration determines. The user must give the others."""
        sizes = {**(self.sizes or {}), **({"batch_size": batch} if batch else {})}
        found: list[tuple[str, Shape]] = []
        for item in onnx.inputs:
            dims = tuple(sizes.get(dim) if isinstance(dim, str) else dim for dim in item.dims or ())
            closed = tuple(dim for dim in dims if dim is not None)
            if item.dims and len(closed) == len(dims) and closed != item.dims:
                found.append((item.name, closed))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class GenaiConfig:
    """The programs that MIGraphX runs, and notes for the user."""

    parts: tuple[GenaiProgram, ...]
    notes: tuple[str, ...] = ()


def read_genai_config(path: Path) -> GenaiConfig:
    """Read a configuration file, or the one in a folder.

    Raises `UsageError` that names the invalid field, and `DamagedError` for a file that is not JSON.
    """
    path = path / "genai_config.json" if path.is_dir() else path
    top = _document(path)
    model = dict(fields(top["model"], "model"))
    search = _Search.read(top.get("search"), model)
    parts, notes = [], []
    for where, name, part in _models(model):
        chosen, more = _provider(part, where)
        notes += more
        if chosen is None:
            notes.append(f"{where} does not use MIGraphX: no program is fetched for it.")
            continue
        file = _file(part["filename"], f"{where}.filename")
        found, more = _parts(name, path.parent / file, chosen, search)
        parts += found
        notes += more
    if not parts:
        raise UsageError(
            f"No model in {path} uses MIGraphX.",
            hint="Add an entry AMDGPU or MIGraphX to provider_options, for example"
            ' model.decoder.session_options.provider_options = [{"AMDGPU": {}}].',
        )
    return GenaiConfig(tuple(parts), tuple(dict.fromkeys(notes)))


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES)
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
    return top


@dataclass(frozen=True, slots=True)
class _Search:
    """The sizes at run time: tokens, rows of a batch, and whether past and present are one buffer of all tokens."""

    length: int | None
    rows: int
    shared: bool

    @classmethod
    def read(cls, search: object, model: Mapping[str, Any]) -> _Search:
        rows = dict(fields(search, "search")) if search is not None else {}
        # GenAI takes the context length where max_length is 0 or missing, and one buffer only without beam search.
        length = rows.get("max_length") or model.get("context_length") or None
        where = "search.max_length" if rows.get("max_length") else "model.context_length"
        beams = size_of(rows.get("num_beams", 1), "search.num_beams")
        shared = rows.get("past_present_share_buffer", False)
        if not isinstance(shared, bool):
            raise refuse("search.past_present_share_buffer", "true or false", shared)
        return cls(
            None if length is None else size_of(length, where),
            size_of(rows.get("batch_size", 1), "search.batch_size") * beams,
            shared and (beams == 1 or model.get("type") == "whisper"),
        )

    def phases(self) -> Iterator[tuple[str, Mapping[str, int]]]:
        """The sizes of the symbols in GenAI's models: for the whole prompt, and for one token after it."""
        assert self.length is not None
        for phase, tokens, past in (("prefill", self.length, 0), ("decode", 1, self.length - 1)):
            known = self.length if self.shared else past
            yield (
                phase,
                {
                    "batch_size": self.rows,
                    "sequence_length": tokens,
                    "past_sequence_length": known,
                    "total_sequence_length": self.length,
                    "max_sequence_length": self.length,
                    "kv_sequence_length": known,
                },
            )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The provider of a model in lower case, its options as written, and the path of the options."""

    provider: str
    options: Mapping[str, Any]
    where: str

    def value(self, name: str) -> Any:
        """The option in either spelling, None if it is absent. Raises `UsageError` if the two differ."""
        given = {each: self.options[each] for each in (name, PREFIX + name) if each in self.options}
        if len({str(value).lower() for value in given.values()}) > 1:
            raise UsageError(f"{self.where}: {' and '.join(given)} have different values.", hint="Omit one of the two.")
        return next(iter(given.values()), None)

    def is_on(self, name: str) -> bool:
        value = self.value(name)
        words = {"1": True, "true": True, "0": False, "false": False, "none": False}
        if str(value).lower() not in words:
            raise refuse(f"{self.where}.{name}", "1, 0, true or false", value)
        return words[str(value).lower()]


def _models(model: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield each object below `model` with a file name, including those of a pipeline: path, name, object.

    The session options of the object are those that apply to it.
    """
    decoder = model.get("decoder")
    main = dict(fields(decoder, "model.decoder")).get(OWN_OPTIONS, {}) if decoder is not None else {}
    for name, value in model.items():
        where = f"model.{name}"
        if not isinstance(value, dict):
            continue
        own = value.get(OWN_OPTIONS, main if name in INHERITING else {})
        if "filename" in value:
            yield where, name, {**value, OWN_OPTIONS: own}
        steps = value.get("pipeline", [])
        if not isinstance(steps, list):
            raise refuse(f"{where}.pipeline", "a list", steps)
        for index, step in enumerate(steps):
            for inner, part in fields(step, f"{where}.pipeline[{index}]"):
                at = f"{where}.pipeline[{index}].{inner}"
                rows = dict(fields(part, at))
                if "filename" not in rows:
                    raise refuse(f"{at}.filename", "the name of an ONNX file", None)
                yield at, f"{name}-{inner}", {OWN_OPTIONS: own, **rows}


def _provider(part: Mapping[str, Any], where: str) -> tuple[_Chosen | None, list[str]]:
    """The MIGraphX provider of a model, and notes about its entry. Raises `UsageError` where there are two."""
    at = f"{where}.{OWN_OPTIONS}"
    listed = dict(fields(part.get(OWN_OPTIONS, {}), at)).get("provider_options", [])
    at += ".provider_options"
    if not isinstance(listed, list):
        raise refuse(at, "a list", listed)
    found: list[_Chosen] = []
    notes: list[str] = []
    for index, row in enumerate(listed):
        rows = dict(fields(row, f"{at}[{index}]"))
        if "name" in rows:
            here = f"{at}[{index}].options"
            entries = [(_string(rows["name"], f"{at}[{index}].name"), rows.get("options", {}), here)]
        else:
            entries = [(name, options, f"{at}[{index}].{name}") for name, options in rows.items()]
        for name, options, here in entries:
            if name.lower() in (*PADDING, *FORWARDING):
                found.append(_Chosen(name.lower(), dict(fields(options, here)), here))
                if "name" in rows:
                    notes.append(
                        f'{at}[{index}]: GenAI itself reads {{"{name}": {{...}}}}; the form with name and options is '
                        "that of the fork onnxruntime-genai-migraphx."
                    )
    if len(found) > 1:
        raise UsageError(
            f"{at} names a MIGraphX provider twice: {found[0].where} and {found[1].where}.",
            hint="Keep one entry, AMDGPU or MIGraphX.",
        )
    return (found[0], [*notes, *_spelling(found[0])]) if found else (None, [])


def _spelling(chosen: _Chosen) -> list[str]:
    """A note if the names of the options suit one of the two libraries behind the name `MIGraphX` only."""
    if chosen.provider in PADDING:
        return []
    known = [f"{word}_enable" for word in ORDER] + ["exhaustive_tune", "compile_batches"]
    plain = [name for name in chosen.options if name in known]
    if not plain:
        return []
    return [
        f"{chosen.where}: the provider built into ONNX Runtime (onnxruntime-migraphx, up to 1.27.1) refuses {plain[0]} "
        f"and then runs on the CPU: it needs {PREFIX}{plain[0]}. The plugin (onnxruntime-ep-migraphx) takes both."
    ]


def _parts(name: str, path: Path, chosen: _Chosen, search: _Search) -> tuple[list[GenaiProgram], list[str]]:
    on = [word for word in ORDER if chosen.is_on(f"{word}_enable")]
    if {"fp16", "bf16"} <= set(on):
        raise UsageError(
            f"{chosen.where}: fp16_enable and bf16_enable disable each other.", hint="Enable only one of them."
        )
    whole = GenaiProgram(name, path, "+".join(on) or None, _tuning(chosen), batches=_batches(chosen))
    if name != "decoder" or search.length is None:
        return [whole], []
    notes = []
    if chosen.provider not in PADDING:
        notes.append(
            f"{chosen.where}: this provider pads nothing. For a model with open lengths, the programs serve a prompt "
            f"of exactly {search.length} tokens and the last token. AMDGPU pads; "
            f"{stated('inputs', 'NAME=DIMS')} states other ones."
        )
    elif not search.shared:
        notes.append(
            "search.past_present_share_buffer is off (or num_beams is above 1): GenAI refuses to run AMDGPU without it."
        )
    return [replace(whole, phase=phase, sizes=sizes) for phase, sizes in search.phases()], notes


def _tuning(chosen: _Chosen) -> str | None:
    mode = str(chosen.value("compute_mode") or "balanced").lower()
    if mode not in TUNINGS:
        raise refuse(f"{chosen.where}.compute_mode", "one of " + ", ".join(TUNINGS), mode)
    return "exhaustive" if chosen.is_on("exhaustive_tune") else TUNINGS[mode]


def _batches(chosen: _Chosen) -> tuple[int, ...]:
    value = chosen.value("compile_batches")
    where = f"{chosen.where}.compile_batches"
    found = [part.strip() for part in _string("" if value is None else value, where).split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in found):
        raise refuse(where, "numbers joined by commas", value)
    return tuple(sorted({size_of(int(part[:12]), where) for part in found}))


def _file(value: object, where: str) -> str:
    """A path below the folder of the configuration. A link in that folder may lead anywhere, as in model caches."""
    name = PurePosixPath(_string(value, where))
    if name.is_absolute() or ".." in name.parts:
        raise refuse(where, "a path below the folder of the configuration", value)
    return str(name)


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise refuse(where, "a string", value)
    return text(value, where)
