"""What to do after an error of a registry, for users of a client: a registry words its hints for whoever speaks HTTP.

The words come from the code of an error, its context, and the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mxr.artifact.attributes import Request, option_values
from mxr.artifact.matching import BUILT_ONLY
from mxr.display.text import shell_quoted
from mxr.errors import (
    ConflictError,
    MismatchError,
    MxrError,
    NoSuchArtifactError,
    NoSuchBlobError,
    NotAllowedError,
    NotFoundError,
    NoWorkerError,
    UsageError,
)
from mxr.facts import ALLOWANCES, command_words, stated

LISTS = {
    "artifact": "`mxr ls`",
    "recall": "`mxr ls --state yanked` (or quarantined)",
    "job": "`mxr jobs`",
    "lock": "`mxr lock --registered`",
}
"""The commands that list objects, by `context.object`."""

Context = Mapping[str, Any]


def command_hint(error: MxrError) -> str | None:
    """Return the hint with commands for an error that a registry answered; None to keep that of the registry."""
    for kind, words in _WORDS:
        if isinstance(error, kind) and (found := words(error.context)):
            return found
    return next((text for kind, name, text in _TEXTS if isinstance(error, kind) and error.context.get(name)), None)


def _not_found(context: Context) -> str:
    if context.get("removed"):
        return "Fetch another program. To publish this one again all the same: `mxr push --restore`."
    listed = LISTS.get(str(context.get("object")))
    return f"{listed} lists those that there are." if listed else ""


def _ambiguous(context: Context) -> str:
    listed = LISTS.get(str(context.get("object")))
    return f"Give more digits of the id; {listed} shows them." if listed else ""


def _no_worker(context: Context) -> str:
    needed = context.get("needed")
    if not isinstance(needed, Mapping):
        return ""
    if needed.get("complete") is False:
        wanted = f"A cross-compile needs the whole GPU: state {stated('num_cu')} and {stated('chiplets')} as well."
        return f"{wanted} {needed.get('products') or ''}".rstrip()
    run = "mxr-worker run" if needed.get("form") == "whole" else "mxr-worker run --python PATH-OF-THAT-INTERPRETER"
    hint = f"Start `{run}` on such a host, or queue the job with `mxr fetch --on-miss ask`. "
    hint += "`mxr workers` lists the workers."
    if needed.get("rocm_patch") and "patch" not in (needed.get("allow") or ()):
        hint += f" `{stated('allow', 'patch')}` accepts another ROCm patch version."
    return hint


def _excluded(context: Context) -> str:
    rule = context.get("serve")
    promote = _promote(rule)
    if promote and isinstance(rule, Mapping) and rule.get("rule") == BUILT_ONLY:
        return f"Have a worker compile it (`--on-miss wait`), or {promote}"
    return _unserved(context)


def _unserved(context: Context) -> str:
    hint = _promote(context.get("serve"))
    return hint[:1].upper() + hint[1:]


def _promote(rule: object) -> str:
    """The end of a hint. `rule`: `serve` in the context of an error."""
    if not (isinstance(rule, Mapping) and isinstance(ids := rule.get("excluded"), list) and ids):
        return ""
    # Quoted: the words come from a registry, and people copy commands.
    promote = f"mxr promote {shell_quoted(str(ids[0])[:12])}"
    every = f"mxr-registry namespace set {shell_quoted(str(rule.get('namespace'))[:100])} --serve any"
    return f"promote it (`{promote}`), or serve every artifact: `{every}` on the registry's host."


_WORDS: tuple[tuple[type[MxrError], Callable[[Context], str]], ...] = (
    (NoWorkerError, _no_worker),
    (NoSuchArtifactError, _excluded),
    (NotAllowedError, _unserved),
    (NotFoundError, _not_found),
    (UsageError, _ambiguous),
)
"""Words that depend on more than whether the context has a field."""

_TEXTS: tuple[tuple[type[MxrError], str, str], ...] = (
    (
        NoSuchArtifactError,
        "ids",
        "Publish them (for a bundle: `mxr import --into registry`), or create a new lock with `mxr lock`.",
    ),
    (
        NotAllowedError,
        "locks",
        "Replace the lock with one without this artifact, or remove it with `mxr lock --unregister NAME`. An "
        "administrator can remove the artifact nevertheless, with --force.",
    ),
    (
        ConflictError,
        "used",
        "Yank it (`mxr yank ID --reason TEXT`) or quarantine it (`mxr quarantine ID --reason TEXT`) first. An "
        "administrator can remove it nevertheless, with --force.",
    ),
    (ConflictError, "word", "End the quarantine first: `mxr unyank ID`."),
    (NoSuchBlobError, "calibration", "Give the file of calibration data, so that it can be uploaded."),
    (ConflictError, "amendable", "To replace the facts of an artifact that you pushed, add --amend."),
    (ConflictError, "also_for", "Push the program of this model. If both have the same weights, add --also-for."),
    (
        ConflictError,
        "removed",
        "It may have been removed because it is wrong. If it is good after all, add --restore (push, import).",
    ),
    (ConflictError, "candidates", "Remove those that nobody needs (`mxr ls`, `mxr rm ID`)."),
    (ConflictError, "open_jobs", "Wait for some of them, cancel them (`mxr jobs ID --cancel`), or ask for less."),
    (ConflictError, "limit", "Remove locks that nobody needs with `mxr lock --unregister NAME`."),
    (
        MismatchError,
        "files",
        "Publish it under the key that it was compiled for; `mxr inspect FILE` shows its contents.",
    ),
)
"""Words for an error whose context has a field."""


def with_commands(miss: NoSuchArtifactError, request: Request) -> NoSuchArtifactError:
    """Return a miss whose hint has the options that accept a near artifact, and the command that publishes the program.

    What the rule of a namespace excludes keeps its hint.
    """
    if {"serve", "static"} & miss.context.keys():
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
    values = option_values(key, constraints) | {
        "rocm": constraints.rocm_patch or key.rocm,
        "migraphx": constraints.migraphx_patch or key.migraphx,
        "calibration": "FILE" if key.calibration else None,
    }
    rows = [words for name, value in values.items() for words in command_words(name, value)]
    command = ["mxr", "push", "FILE.mxr", "--model", "MODEL.onnx", *(word for words in rows for word in words)]
    return " ".join(map(shell_quoted, command))
