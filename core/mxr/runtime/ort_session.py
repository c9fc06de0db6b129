"""`mxr.ort_session`: a session of ONNX Runtime on a program that was fetched, or an error that says why it is none.

ONNX Runtime itself is silent: where a provider fails it runs on the CPU, and where a name differs it compiles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mxr.api import as_inputs, connection, prepare, this_host
from mxr.artifact.target import Shape
from mxr.cache.store import Cache
from mxr.consumers.ort import contract, proof
from mxr.consumers.ort.laying import provider_options
from mxr.errors import Mismatch, Usage
from mxr.install import placement
from mxr.install.ort_cache import recorded
from mxr.install.placement import OutputRequest
from mxr.request.builder import Options
from mxr.settings import Settings, load
from mxr.workflows import fetch as fetch_workflow

PROVIDER = "MIGraphXExecutionProvider"
VARIABLE = "ORT_MIGRAPHX_MODEL_CACHE_PATH"


def ort_session(
    model: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    session_options: Any = None,
    provider: Mapping[str, str] | None = None,
    ort: Mapping[str, str] | None = None,
    offline: bool = False,
    settings: Settings | None = None,
    inputs: Mapping[str, Shape] | None = None,
    **said: Any,
) -> Any:
    """An `onnxruntime.InferenceSession` that loaded the right program for this model and did not compile.

    The program is fetched and placed under `folder` (default: beside the cache). `session_options` are ONNX Runtime's,
    `provider` more options of its provider, `ort` what `mxr fetch --ort...` takes, by the same names. `said` are the
    fields of `mxr.Options`. Raises what `mxr.fetch` does, `Usage` where ONNX Runtime cannot be used, and `Mismatch`
    when it fell back to the CPU or compiled instead of loading.

        session = mxr.ort_session("model.b8.onnx")
    """
    settings = settings or load(os.environ)
    _refuse_variable()
    cache = Cache(settings.cache_dir)
    connect = None if offline else connection(settings)
    options = Options(inputs=as_inputs(inputs), **{**said, "consumer": "ort"})
    subject, asked = prepare(options, os.fspath(model), cache, connect, this_host(settings, options))
    if subject.path is None:
        raise Usage("A session needs the model itself.", hint="Give the ONNX file instead of its hash.")
    found = contract.choose((ort or {}).get("ort"), (ort or {}).get("ort_migraphx"))
    if found.generation not in ("B", "B'", "C"):
        raise Usage(
            f"mxr opens no sessions for generation {found.generation} ({contract.GENERATIONS[found.generation]}).",
            hint="Place the program with `mxr fetch --for ort -o FOLDER/`, and use the settings that it prints.",
        )
    wish = OutputRequest(f"{folder or settings.cache_dir / 'ort'}/", said=dict(ort or {}))
    placement.check(asked, subject, wish, offline=offline)
    known = recorded(asked, subject, wish, cache, connect)
    if known is not None:
        home = known[1].path
    else:
        program = fetch_workflow.fetch(asked.request, cache, connect)
        home = placement.deliver(program, cache, asked, subject, wish, connect).path
    given = {**provider_options(str(home), _precisions(asked.request.key.precision)), **(provider or {})}
    return open_session(subject.path, home, given, session_options)


def open_session(model: Path, home: Path, options: Mapping[str, str], session_options: Any = None) -> Any:
    """A session on what lies in `home`. Raises `Usage`, or `Mismatch` when that was not what it used."""
    from importlib import import_module

    try:
        runtime = import_module("onnxruntime")
    except ImportError as problem:
        raise Usage(f"ONNX Runtime cannot be imported: {problem}.", hint="Install onnxruntime-migraphx.") from problem
    if PROVIDER not in runtime.get_available_providers():
        raise Usage("This ONNX Runtime has no MIGraphX provider.", hint="Install onnxruntime-migraphx in its place.")
    try:
        session = runtime.InferenceSession(
            os.fspath(model), session_options, providers=[(PROVIDER, dict(options)), "CPUExecutionProvider"]
        )
    except Exception as problem:  # ONNX Runtime's own errors have no class in common
        raise Mismatch(
            f"ONNX Runtime opens no session: {' '.join(str(problem).split())[:300]}", hint=_compiled_hint(home)
        ) from problem
    if PROVIDER not in session.get_providers():
        raise Mismatch(
            "ONNX Runtime fell back to the CPU: its MIGraphX provider did not start.",
            hint="What it printed says why: an option that it does not know, or no GPU that it can use.",
            detail={"providers": session.get_providers()},
        )
    if findings := proof.verify(home):
        raise Mismatch(
            f"ONNX Runtime compiled instead of loading: {findings[0].path.name} was {findings[0].kind}. "
            f"{findings[0].why}",
            hint=_compiled_hint(home),
            detail={"findings": [each.to_json() for each in findings]},
        )
    return session


def _compiled_hint(home: Path) -> str:
    return f"`mxr verify {home}` tells more; remove what it names before the next try."


def _precisions(words: Sequence[str]) -> list[str]:
    return [word for word in words if word in ("fp16", "bf16", "fp8", "int8")]


def _refuse_variable() -> None:
    """The variable wins over the option in the releases that most hosts have. Raises `Usage`."""
    if os.environ.get(VARIABLE):
        raise Usage(f"{VARIABLE} is set, and ONNX Runtime would look there.", hint=f"Unset {VARIABLE}.")
