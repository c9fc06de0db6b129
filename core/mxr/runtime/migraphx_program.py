"""`mxr.load`: fetch, check, and load in this process. The one room of the core that imports migraphx, when called.

Its name is not `load`, so that the module can never hide the function.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from mxr import api
from mxr.artifact import target
from mxr.artifact.target import Shape
from mxr.errors import Damaged, Mismatch, MxrError, Temporary, Usage
from mxr.request import compatibility as checks
from mxr.request.builder import Options, choose_hardware, choose_toolchain
from mxr.settings import Settings
from mxr.settings import load as load_settings
from mxr.workflows.fetch import Fetched

KINDS: Mapping[str, type[MxrError]] = {
    "permanent": Mismatch,
    "mismatch": Mismatch,
    "damaged": Damaged,
    "usage": Usage,
    "transient": Temporary,
    "hang": Temporary,
}
"""The error of ours for each kind of failure that `mxr explain` knows."""


def load(
    model: str | os.PathLike[str],
    *,
    offline: bool = False,
    settings: Settings | None = None,
    inputs: Mapping[str, Shape] | None = None,
    **said: Any,
) -> Any:
    """The right program for a model, loaded: a `migraphx.program`, ready to run. What is not said is this host's.

    `said` are the fields of `mxr.Options`, as for `mxr.fetch`; MIGraphX's version is that of the module that loads it.
    Raises what `mxr.fetch` raises; `Usage` where there is no migraphx, or only its empty placeholder; `Mismatch`, each
    field as needed and as found, before MIGraphX would fail over it; what MIGraphX says itself in plain words.

        program = mxr.load("model.onnx", batch=8)
        output = program.run({"x": migraphx.argument(array)})[0]      # keep `array` until it has run
    """
    module = _module()
    version = _version(module)
    if version is not None and said.get("migraphx") is None:
        said["migraphx"] = version
    settings = settings or load_settings(os.environ)
    found = api.fetch(model, offline=offline, settings=settings, inputs=inputs, **said)
    _refuse_other(found, version)
    _check(found, settings, Options(inputs=api.as_inputs(inputs), **said))
    try:
        return module.load(str(found.path))
    except Exception as problem:
        raise _explained(problem, found) from problem


def _module() -> Any:
    try:
        import migraphx  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as problem:
        raise Usage(
            f"Python finds no migraphx here: {problem}.",
            hint="Install ROCm's migraphx package, and put its folder on PYTHONPATH (often /opt/rocm/lib).",
        ) from None
    if not callable(getattr(migraphx, "load", None)):
        raise Usage(
            f"The migraphx that Python finds ({getattr(migraphx, '__file__', None) or 'a folder'}) is empty: the public"
            " index has a placeholder of that name.",
            hint="pip uninstall migraphx, and put the folder of ROCm's module on PYTHONPATH (often /opt/rocm/lib).",
        )
    return migraphx


def _version(module: Any) -> str | None:
    """What the module says that it is, where that is a version: some builds say `dev`."""
    found = re.match(r"[0-9]{1,6}\.[0-9]{1,6}(?:\.[0-9]{1,6})?(?![0-9])", str(getattr(module, "__version__", "")))
    return found[0] if found else None


def _refuse_other(found: Fetched, version: str | None) -> None:
    key = found.answer.artifact.key
    if version is None or target.split_version(version, "migraphx", zeros=True)[0] == key.migraphx:
        return
    raise Mismatch(
        f"The program is for MIGraphX {key.migraphx}, and the module that would load it is {version}.",
        hint="Leave migraphx=... out, or run with the Python module of that version.",
        detail={"differences": [{"field": "migraphx", "asked": key.migraphx, "found": version}]},
    )


def _check(found: Fetched, settings: Settings, options: Options) -> None:
    """Holds the file against this host, as `mxr check` does."""
    from mxr.program import describe_file

    host = api.this_host(settings, options)
    hardware, toolchain = choose_hardware(options, host, [])
    description = describe_file(found.path).to_json()
    rows = [row for row in checks.check(description, hardware, choose_toolchain(options, toolchain)) if row.ok is False]
    # What the request let pass with `allow` stands in the answer; the file itself can only be refused for the rest.
    if rows:
        raise Mismatch(
            f"{found.path} would not load here: "
            + "; ".join(f"{row.field} needs {row.needed}, found {row.found} ({row.why})" for row in rows)
            + ".",
            hint="`mxr check FILE` shows it again; the program was published under a label that is wrong.",
            detail={"differences": [{"field": row.field, "asked": row.needed, "found": row.found} for row in rows]},
        )


def _explained(problem: Exception, found: Fetched) -> MxrError:
    from mxr.known_failures.explainer import explain

    text = f"{type(problem).__name__}: {problem}"
    known = explain(text)
    detail = {"path": str(found.path), "text": text, "explanations": [each.to_json() for each in known]}
    if not known:
        return Mismatch(
            f"MIGraphX refuses {found.path}: {problem}.",
            hint=f"mxr check {found.path} shows what it needs beside what is here.",
            detail=detail,
        )
    first = known[0]
    return KINDS.get(first.failure.kind, Mismatch)(first.means, hint=first.fix, detail=detail)
