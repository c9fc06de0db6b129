"""The commands that help after a miss, worded here: the registry sends what is missing as data."""

from __future__ import annotations

from collections.abc import Mapping

from mxr.artifact import target
from mxr.artifact.attributes import ALLOWANCES, Request
from mxr.display.text import shell_quoted
from mxr.errors import NoSuchArtifactError
from mxr.facts import CONSTRAINT, FACTS, KEY, command_words, stated


def with_commands(miss: NoSuchArtifactError, request: Request) -> NoSuchArtifactError:
    """Return a miss whose hint has the options that accept a near artifact, and the command that publishes the program.

    What the rule of a namespace excludes keeps its hint.
    """
    if "serve" in miss.context:
        return miss
    publish = f"ompile the program and publish it: `{push_command(request)}`"
    option = _accepting_option(miss.context.get("accept"))
    miss.hint = f"{option} Otherwise c{publish}" if option else f"C{publish}"
    return miss


def _accepting_option(accept: object) -> str:
    """Word `context.accept` of a registry; empty for anything else."""
    if not isinstance(accept, Mapping):
        return ""
    artifact, allow = str(accept.get("id"))[:12], accept.get("allow")
    if accept.get("exact") is False:
        return f"To accept artifact {artifact}, omit {stated('exact')}."
    if isinstance(allow, list) and allow and all(name in ALLOWANCES for name in allow):
        patch = ", and state no patch of ROCm" if "rocm_patch" in accept else ""
        return f"To accept artifact {artifact}, use `{stated('allow', ','.join(allow))}`{patch}."
    return ""


def push_command(request: Request) -> str:
    """Return the `mxr push` command that publishes the requested program, without backticks."""
    key, constraints = request.key, request.constraints
    where = {KEY: key, CONSTRAINT: constraints}
    values = {fact.name: getattr(where[fact.place], fact.name) for fact in FACTS if fact.place in where}
    values |= {
        "vendor": None if key.vendor == "amd" else key.vendor,
        "kind": key.kind if key.kind == "ref" else None,
        "arch": str(target.GfxArch(key.arch or "", constraints.sramecc, constraints.xnack)) if key.arch else None,
        "chiplets": None,
        "rocm": constraints.rocm_patch or key.rocm,
        "migraphx": constraints.migraphx_patch or key.migraphx,
        "inputs": {name: target.show_dims(shape) for name, shape in key.inputs},
        "precision": "+".join(key.precision) or "fp32",
        "calibration": "FILE" if key.calibration else None,
        "env": dict(key.env),
        "options": dict(key.options),
    }
    rows = [words for name, value in values.items() for words in command_words(name, value)]
    command = ["mxr", "push", "FILE.mxr", "--model", "MODEL.onnx", *(word for words in rows for word in words)]
    return " ".join(map(shell_quoted, command))
