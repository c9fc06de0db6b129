"""`mxr.ort_session`: opens an ONNX Runtime session on a fetched program, and verifies that the program was loaded.

ONNX Runtime reports neither problem: if a provider fails it runs on the CPU, and if a file name differs it compiles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.api.calls import (
    configured_defaults,
    connection,
    library_call,
    library_settings,
    make_options,
    warned,
)
from mxr.artifact.target import DynamicDim
from mxr.cache.store import Cache
from mxr.consumers.ort import contract, verification
from mxr.consumers.ort.layout import provider_options
from mxr.consumers.ort.options import OrtSessionOptions
from mxr.display.text import shell_quoted
from mxr.errors import MismatchError, UsageError
from mxr.install.installer import installer_for
from mxr.install.placement import Destination
from mxr.plans.plan import PlannedProgram, fetch_plan
from mxr.request.defaults import this_host
from mxr.settings import Settings
from mxr.workflows.preparation import prepare

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mxr.request.builder import OptionArguments

PROVIDER = "MIGraphXExecutionProvider"
VARIABLE = "ORT_MIGRAPHX_MODEL_CACHE_PATH"


@library_call
def ort_session(
    model: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    session_options: Any = None,
    provider: Mapping[str, str] | None = None,
    ort: Mapping[str, str] | None = None,
    offline: bool = False,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> Any:
    """Open an `onnxruntime.InferenceSession` that loaded the right program for this model and did not compile.

    The program is fetched and placed under `folder` (default: a folder beside the cache). `session_options` are those
    of ONNX Runtime, `provider` holds further options of its provider. `ort` holds the options of `mxr fetch --ort...`
    by name, for example `{"ort_level": "basic"}`. The other keyword arguments are the fields of `mxr.RequestOptions`.

    Raises what `mxr.fetch` raises; `UsageError` if ONNX Runtime cannot be used; `MismatchError` if it fell back to the
    CPU or compiled instead of loading.

        session = mxr.ort_session("model.b8.onnx")
    """
    settings = settings or library_settings()
    _refuse_variable()
    cache = Cache.of(settings)
    connect = None if offline else connection(settings)
    stated = make_options(inputs, {**options, "consumer": "ort"}, None)
    defaults = configured_defaults(os.fspath(model), settings)
    host = this_host(settings, stated)
    prepared = prepare(stated, os.fspath(model), cache, connect, host, defaults=defaults)
    if prepared.model.path is None:
        raise UsageError("A session needs the model itself.", hint="Give the ONNX file instead of its hash.")
    consumer_options = dict(ort or {})
    generation = OrtSessionOptions.read(consumer_options).contract().generation
    if generation not in ("B", "B'", "C"):
        raise UsageError(
            f"mxr.ort_session does not support generation {generation} ({contract.GENERATIONS[generation]}).",
            hint="Place the program with `mxr fetch --for ort -o FOLDER/`, and use the settings that it prints.",
        )
    output = Destination(f"{folder or cache.folder.base / 'ort'}/", consumer_options=consumer_options)
    with cache.staged_beside(folder):
        (found,) = map(warned, fetch_plan([PlannedProgram(prepared, output)], cache, connect))
        home = installer_for(prepared.consumer).deliver(found, cache, prepared, output, connect).path
    given = {**provider_options(str(home), _precisions(prepared.request.key.precision)), **(provider or {})}
    return open_session(prepared.model.path, home, given, session_options)


def open_session(model: Path, home: Path, options: Mapping[str, str], session_options: Any = None) -> Any:
    """Open a session on the files in `home`.

    Raises `UsageError`, or `MismatchError` if the session did not use them.
    """
    from importlib import import_module

    try:
        runtime = import_module("onnxruntime")
    except ImportError as problem:
        raise UsageError(
            f"ONNX Runtime cannot be imported: {problem}.", hint="Install onnxruntime-migraphx."
        ) from problem
    if PROVIDER not in runtime.get_available_providers():
        raise UsageError(
            "The installed ONNX Runtime has no MIGraphX provider.",
            hint="Uninstall onnxruntime, and install onnxruntime-migraphx.",
        )
    try:
        session = runtime.InferenceSession(
            os.fspath(model), session_options, providers=[(PROVIDER, dict(options)), "CPUExecutionProvider"]
        )
    except Exception as problem:  # the errors of ONNX Runtime have no common base class
        raise MismatchError(
            f"ONNX Runtime cannot open a session: {' '.join(str(problem).split())[:300]}", hint=_compiled_hint(home)
        ) from problem
    if PROVIDER not in session.get_providers():
        raise MismatchError(
            "ONNX Runtime fell back to the CPU: its MIGraphX provider did not start.",
            hint="Read what ONNX Runtime printed: it does not know a provider option, or found no GPU that it can use.",
            context={"providers": session.get_providers()},
        )
    if findings := verification.verify_ort_folders(home):
        raise MismatchError(
            f"ONNX Runtime compiled instead of loading: {findings[0].path.name} was {findings[0].kind}. "
            f"{findings[0].why}",
            hint=_compiled_hint(home),
            context={"findings": [finding.to_json() for finding in findings]},
        )
    return session


def _compiled_hint(home: Path) -> str:
    return f"`mxr verify {shell_quoted(home)}` shows details; remove the files that it lists before you try again."


def _precisions(words: Sequence[str]) -> list[str]:
    return [word for word in words if word in ("fp16", "bf16", "fp8", "int8")]


def _refuse_variable() -> None:
    """Refuse the environment variable, because it overrides the provider option in most releases.

    Raises `UsageError`.
    """
    if os.environ.get(VARIABLE):
        raise UsageError(
            f"{VARIABLE} is set, so ONNX Runtime would read that folder instead.", hint=f"Unset {VARIABLE}."
        )
