"""Request defaults from the settings and the project of a model, and how they complete the options of a request.

Options and the facts of the host come first: a default fills what they leave open, and never replaces a fact.

The files of a project that set defaults, `mxr.toml` and `[tool.mxr]` in `pyproject.toml`, are looked for in the folder
of the model and above it, up to the root of the repository or the home folder. The nearest file that sets a value wins;
in one folder, `mxr.toml` wins. A file that another user owns or can write, or that a download brought, is not used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mxr import consumers
from mxr.artifact.key import other_releases
from mxr.artifact.request_defaults import NAMES, NO_DEFAULTS, RequestDefaults
from mxr.artifact.target import Inputs, Shape, show_dims
from mxr.configuration.config_file import ConfigFile, UntrustedFileError, read_config
from mxr.configuration.schema import VARIABLES
from mxr.errors import UsageError
from mxr.facts import stated
from mxr.host_facts import Host, combine, read_recorded
from mxr.settings import DEFAULTS, Settings
from mxr.util.frozen import dataclass

from .builder import VERSION_NAMES, RequestOptions, known_toolchain
from .model import ModelReference, is_identity

ELSEWHERE = tuple(name for name in VARIABLES if name not in NAMES)
"""The settings that no project file may have."""


def of_settings(settings: Settings) -> RequestDefaults:
    """Return the request defaults among the settings: those of the user's file and of the environment."""
    found = {name: value for name in (*DEFAULTS, "consumer") if (value := getattr(settings, name))}
    sources = {name: settings.sources.get(name, "the settings") for name in found}
    return RequestDefaults(**found, sources=sources)


def of_project(model: str | None, settings: Settings) -> ProjectDefaults:
    """Return the defaults of the project that a model belongs to; of the current folder, without a model.

    A model given by its identity belongs to none. Raises `UsageError` for an invalid file.
    """
    if model is not None and is_identity(model):
        return ProjectDefaults(NO_DEFAULTS)
    try:
        folder = Path() if model is None else Path(model).parent
        folder, home = folder.resolve(), settings.home and settings.home.resolve()
    except (OSError, RuntimeError, ValueError):
        # No such folder, such as a loop of links: reading the model says so.
        return ProjectDefaults(NO_DEFAULTS)
    return find_defaults(folder, home, ELSEWHERE)


def apply_defaults(
    options: RequestOptions, defaults: RequestDefaults, model: ModelReference, host: Host
) -> tuple[RequestOptions, tuple[str, ...]]:
    """Return the options with the defaults for what they and the host leave open, and notes about what was used.

    Versions apply to AMD's GPUs only, the MIGraphX version also to the CPU reference target. Dims apply to inputs of
    this name, a batch size where exactly one is set and the model leaves it open; before it comes the only batch size
    that the consumer loads. Raises `UsageError` for a default
    that contradicts the model, with its source.
    """
    found, used, overridden = _with_toolchain(options, defaults, host)
    if options.consumer is None and defaults.consumer is not None:
        _check_consumer(defaults)
        found, used = replace(found, consumer=defaults.consumer), {**used, "consumer": defaults.consumer}
    if defaults.allow is not None and may_allow_rocm(found, host):
        found, used = replace(found, allow=(*found.allow, defaults.allow)), {**used, "allow": defaults.allow}
    only = _only_batch(found.consumer)
    if only is not None and options.batch is None and _takes_batch(found, model, only):
        found = replace(found, batch=only)
        overridden = (*overridden, f"batch {only}, the only one that {found.consumer} loads")
    if found.batch is None and len(defaults.batch) == 1 and _takes_batch(found, model, defaults.batch[0]):
        found, used = replace(found, batch=defaults.batch[0]), {**used, "batch": str(defaults.batch[0])}
    inputs = _default_inputs(found, defaults, model)
    if inputs:
        found = replace(found, inputs=(*found.inputs, *inputs))
        used |= {f"inputs.{name}": show_dims(shape) for name, shape in inputs}
    return found, (*_notes(used, defaults), *overridden)


def may_allow_rocm(options: RequestOptions, host: Host) -> bool:
    """Whether `--allow rocm` could change a request: its ROCm has other releases, and no option excludes them."""
    if options.exact or "rocm" in options.allow or (options.rocm or "").count(".") > 1:
        return False
    _, vendor, known = known_toolchain(options, host)
    return bool(other_releases(vendor, ".".join(_minor(known.rocm or ""))))


def default_batches(options: RequestOptions, defaults: RequestDefaults, model: ModelReference) -> tuple[int, ...]:
    """Return the batch sizes of the defaults where there are several that the model takes; else none."""
    only = _only_batch(options.consumer or defaults.consumer)
    if options.batch is not None or len(defaults.batch) < 2 or only is not None:
        return ()
    inputs = _default_inputs(replace(options, batch=defaults.batch[0]), defaults, model)
    options = replace(options, inputs=(*options.inputs, *inputs))
    return defaults.batch if _takes_batch(options, model, defaults.batch[0]) else ()


def _with_toolchain(
    options: RequestOptions, defaults: RequestDefaults, host: Host
) -> tuple[RequestOptions, dict[str, str], tuple[str, ...]]:
    """Return the options with default versions, what was used, and a note for each version that the host overrides."""
    if defaults.rocm is None and defaults.migraphx is None:
        return options, {}, ()
    kind, vendor, known = known_toolchain(options, host)
    used: dict[str, str] = {}
    overridden: list[str] = []
    for name in ("migraphx",) if kind == "ref" else ("rocm", "migraphx") if vendor == "amd" else ():
        default, fact = getattr(defaults, name), getattr(known, name)
        if default is not None and fact is None:
            used[name] = default
        elif default is not None and getattr(options, name) is None and _minor(default) != _minor(fact):
            source = defaults.sources.get(name, "a default")
            overridden.append(f"this host has {VERSION_NAMES[name]} {fact}: {name} {default} ({source}) is not used")
    changes: dict[str, Any] = dict(used)
    return replace(options, **changes), used, tuple(overridden)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _check_consumer(defaults: RequestDefaults) -> None:
    try:
        consumers.find_consumer(defaults.consumer or "")
    except UsageError as problem:
        raise UsageError(f"{defaults.sources['consumer']}: {problem.message}", hint=problem.hint) from None


def _only_batch(consumer: str | None) -> int | None:
    """The only batch size that a consumer loads. An unknown consumer is reported elsewhere."""
    found = consumers.CONSUMERS.get(consumer or "")
    return found.batch if found else None


def _takes_batch(options: RequestOptions, model: ModelReference, batch: int) -> bool:
    """Whether the batch size settles dims that the options leave open."""
    try:
        return model.bind_known(batch, options.inputs) != model.bind_known(None, options.inputs)
    except UsageError:
        return False


def _default_inputs(options: RequestOptions, defaults: RequestDefaults, model: ModelReference) -> Inputs:
    """The dims of inputs that the options leave open. Without a batch size, an input with `N` stays open."""
    given = {name for name, _ in options.inputs}
    own = {item.name for item in model.onnx.inputs}
    found: list[tuple[str, Shape]] = []
    for name, dims in defaults.inputs.items():
        shape = tuple(options.batch if dim is None else dim for dim in dims)
        if name in given or name not in own or None in shape:
            continue
        chosen = (name, tuple(dim for dim in shape if dim is not None))
        try:
            model.bind_known(options.batch, (*options.inputs, *found, chosen))
        except UsageError as problem:
            # What contradicts the model without any default is said where the request is made.
            model.bind_known(options.batch, options.inputs)
            raise UsageError(
                f"{defaults.sources[f'inputs.{name}']}: inputs.{name}: {problem.message}",
                hint=f"Correct it, or give {stated('inputs', f'{name}=DIMS')}.",
                context=problem.context,
            ) from None
        found.append(chosen)
    return tuple(found)


def _notes(used: dict[str, str], defaults: RequestDefaults) -> tuple[str, ...]:
    """One line for each source, with what was taken from it."""
    rows: dict[str, list[str]] = {}
    for name, value in used.items():
        rows.setdefault(defaults.sources.get(name, "a default"), []).append(f"{name} {value}")
    return tuple(f"{', '.join(values)} ({source})" for source, values in rows.items())


def this_host(settings: Settings, options: RequestOptions | None = None, *, whole_node: bool = False) -> Host:
    """Return the facts of this host, overridden by the recorded host facts in `settings.host_file`, if any.

    Skips the detection of facts that `options` give. A configured `host_file` must be readable in any case.
    `whole_node`: include the GPUs of the node that this container cannot use.
    """
    recorded = read_recorded(settings.host_file) if settings.host_file else None
    if options is not None and options.migraphx is not None and options.kind == "ref":
        return Host()
    from mxr.host_facts import detect

    toolchain = options is None or options.migraphx is None or options.rocm is None
    local = detect(environ=os.environ, toolchain=toolchain, whole_node=whole_node)
    return local if recorded is None else combine(recorded, local)


FILES = (("mxr.toml", ""), ("pyproject.toml", "tool.mxr"))
"""The files of a project, each with the table that has the settings."""

HUB_FOLDERS = ("models--", "datasets--", "spaces--")
"""How the folders of a Hugging Face cache begin. Source: huggingface_hub, "Understand caching"."""

DOWNLOAD_MARKS = (".cache/huggingface/download", ".huggingface/download", ".msc", "._____temp")
"""What a download into a folder leaves there. Sources: huggingface_hub, _local_folder.py, and pull request 2262;
modelscope, hub/utils/caching.py, and hub/snapshot_download.py."""


@dataclass(frozen=True, slots=True)
class ProjectDefaults:
    """What the files of a project set. `unused`: a sentence for each file that is not used."""

    defaults: RequestDefaults
    files: tuple[Path, ...] = ()
    unused: tuple[str, ...] = ()


def find_defaults(start: Path, home: Path | None, elsewhere: tuple[str, ...]) -> ProjectDefaults:
    """Return the defaults for models in the folder `start`.

    `home`: the home folder of the user. `elsewhere`: names of settings that exist and that no project file may set.
    Raises `UsageError` for an invalid file, with the line.
    """
    defaults = RequestDefaults()
    files: list[Path] = []
    unused: list[str] = []
    for folder in _folders(start, home):
        for name, within in FILES:
            path = folder / name
            try:
                file = read_config(path, within)
                # Parsing takes longer than looking for the name, and most projects have no such table.
                if file is None or (within and "mxr" not in file.text):
                    continue
                table = file.table()
                if table is None:
                    continue
                _refuse_download(folder)
            except UntrustedFileError as reason:
                if not within:
                    unused.append(f"{path} is not used: {reason}")
                continue
            defaults = defaults.over(_read(file, table, elsewhere))
            files.append(path)
    return ProjectDefaults(defaults, tuple(files), tuple(unused))


def _folders(start: Path, home: Path | None) -> Iterator[Path]:
    """Yield the folder, and those above it up to the repository or home; without these, only the folder itself."""
    found = []
    for folder in (start, *start.parents):
        found.append(folder)
        if folder == home or os.path.lexists(folder / ".git"):
            yield from found
            return
    yield start


def _refuse_download(folder: Path) -> None:
    """Raise `UntrustedFileError` for a folder that a download brought, by the marks of the tools that download.

    They stand at the top of the download, which the search for settings need not reach.
    """
    if any(part.startswith(HUB_FOLDERS) or part == ".cache" for part in folder.parts):
        raise UntrustedFileError("it came with a download, into a cache")
    for above in (folder, *folder.parents):
        if any(os.path.lexists(above / mark) for mark in DOWNLOAD_MARKS):
            raise UntrustedFileError(f"it came with a download, into {above}")


def _read(file: ConfigFile, table: dict[str, object], elsewhere: tuple[str, ...]) -> RequestDefaults:
    for name in table:
        if name in elsewhere:
            raise file.error(
                name,
                f"a project file cannot set {name}",
                f"Set it for yourself: `mxr config` shows where. A project file can set: {', '.join(NAMES)}.",
            )
    file.check_names(table, NAMES)
    found = RequestDefaults()
    for name, value in table.items():
        try:
            found = RequestDefaults.of({name: value}, str(file.path)).over(found)
        except UsageError as problem:
            # A problem with inputs begins with `inputs.NAME`.
            raise file.error(problem.message.partition(" ")[0], problem.message, problem.hint) from None
    return found
