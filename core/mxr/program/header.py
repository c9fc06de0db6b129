"""Reads the header of a program (versions, flavour, targets) from the keys next to `modules`."""

from __future__ import annotations

from collections.abc import Mapping

from mxr.program.description import Header
from mxr.program.messagepack import damaged

KEYS = frozenset({"version", "migraphx_version", "target", "targets", "context", "contexts", "offload_copy"})
"""The keys of a program other than `modules`. Unknown keys are skipped."""

KNOWN_FILE_VERSIONS = range(5, 9)
"""5 is MIGraphX 2.0 to 2.6, 6 is 2.7, 7 is 2.8 to 2.15 and Hygon's fork, 8 is 2.16."""

_OPTIONS = ("gpu_arch", "gpu_num_cu", "gpu_num_chiplets", "gpu_wavefront_size")


def read_fields(fields: Mapping[str, object], form: str) -> Header:
    """Return the header in `fields`. Raises `DamagedError` if MIGraphX would reject them too."""
    version, migraphx = fields.get("version"), fields.get("migraphx_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise damaged("Not a MIGraphX program: 'version' is missing or not an integer", 0)
    if not isinstance(migraphx, str | None):
        raise damaged("'migraphx_version' is not a string", 0)
    hygon = version > 6 and "targets" not in fields and isinstance(fields.get("target"), str)
    targets = _one_target(fields) if hygon or version < 6 else _targets(fields)
    offload_copy = fields.get("offload_copy")
    contexts = fields.get("contexts", fields.get("context"))
    options = _options(fields.get("targets"))
    gfx_names = [context.get("gfx_name") for context in _maps(contexts)] + [options.get("gpu_arch")]
    return Header(
        file_version=version,
        migraphx=migraphx,
        flavour="hygon" if hygon else "upstream",
        targets=targets,
        form=form,
        offload_copy=offload_copy if isinstance(offload_copy, bool) else None,
        gfx_names=tuple(dict.fromkeys(name for name in gfx_names if isinstance(name, str))),
        target_options=options,
    )


def _one_target(fields: Mapping[str, object]) -> tuple[str, ...]:
    target = fields.get("target")
    if not isinstance(target, str):
        raise damaged("Not a MIGraphX program: 'target' is missing", 0)
    return (target,) if target else ()


def _targets(fields: Mapping[str, object]) -> tuple[str, ...]:
    targets = fields.get("targets")
    names = [target.get("name") for target in _maps(targets)]
    if not isinstance(targets, list | dict) or len(names) != len(targets):
        raise damaged("Not a MIGraphX program: 'targets' is missing or not a list", 0)
    if not all(isinstance(name, str) for name in names):
        raise damaged("A target of the program has no name", 0)
    return tuple(str(name) for name in names)


def _options(targets: object) -> dict[str, object]:
    return {key: target[key] for target in _maps(targets) for key in _OPTIONS if isinstance(target.get(key), str | int)}


def _maps(value: object) -> list[dict[str, object]]:
    values = value if isinstance(value, list) else [value]
    return [value for value in values if isinstance(value, dict)]
