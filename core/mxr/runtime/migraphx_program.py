"""`mxr.load`: fetch a program, check it, and load it with migraphx, which is imported with the first call."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mxr.api import calls
from mxr.api.fetching import fetch
from mxr.artifact import target
from mxr.artifact.attributes import COUNTS
from mxr.artifact.target import DynamicDim
from mxr.display.text import counted, shell_quoted
from mxr.errors import DamagedError, MismatchError, MxrError, TemporaryError, UsageError
from mxr.request import compatibility as checks
from mxr.request.builder import RequestOptions, choose_hardware, choose_toolchain
from mxr.request.defaults import this_host
from mxr.settings import Settings
from mxr.workflows.fetch import Fetched

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mxr.request.builder import OptionArguments

KINDS: Mapping[str, type[MxrError]] = {
    "permanent": MismatchError,
    "mismatch": MismatchError,
    "damaged": DamagedError,
    "usage": UsageError,
    "transient": TemporaryError,
    "hang": TemporaryError,
}
"""The error class for each kind of failure that `mxr explain` knows."""


@calls.library_call
def load(
    model: str | os.PathLike[str],
    *,
    device_id: int | None = None,
    offline: bool = False,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> Any:
    """Return the right program for a model, loaded as a `migraphx.program` and ready to run.

    The arguments are those of `mxr.fetch`. The default of `migraphx` is the version of the imported module.
    `device_id`: which of the GPUs that this process sees, from 0: the program is fetched for it, and loaded there. A
    program of Hygon's that takes larger shapes as well is reshaped to the requested ones.

    Raises what `mxr.fetch` raises; `UsageError` if migraphx is not installed, or is the empty package of the public
    index; `MismatchError` with the required and the actual value of each field if this host cannot load the program;
    and the explained error if MIGraphX itself fails.

        program = mxr.load("model.onnx", batch=8)
        output = program.run({"x": migraphx.argument(array)})[0]      # keep `array` alive until the run ends
    """
    module = _module()
    version = _version(module)
    if version is not None and options.get("migraphx") is None:
        options["migraphx"] = version
    settings = settings or calls.library_settings()
    if device_id is not None:
        options = {**options, **_options_of_device(device_id, settings, options)}  # type: ignore[typeddict-item]
    found = fetch(model, offline=offline, settings=settings, inputs=inputs, **options)
    _refuse_other_version(found, version)
    _check(found, settings, calls.make_options(inputs, options, None))
    try:
        program = _load_on(module, str(found.path), device_id)
        if found.reshape:
            program.reshape({name: list(shape) for name, shape in found.reshape})
        return program
    except MxrError:
        raise
    except Exception as problem:
        raise _explained(problem, found) from problem


def _options_of_device(device_id: int, settings: Settings, options: OptionArguments) -> dict[str, Any]:
    """Return the options that describe one GPU of this host, where the caller states no arch.

    Raises `UsageError` if there is no such GPU.
    """
    if options.get("arch") is not None:
        return {}
    targets = this_host(settings).targets
    if not 0 <= device_id < len(targets):
        raise UsageError(
            f"There is no device {device_id}: this process sees {counted(len(targets), 'GPU')}.",
            hint="`mxr host` lists them, in the order of HIP_VISIBLE_DEVICES.",
        )
    own = targets[device_id]
    names = ("vendor", *COUNTS, "real_arch")
    stated = {name: getattr(own, name) for name in names if getattr(own, name) is not None and name not in options}
    return stated | {"arch": str(target.GfxArch(own.arch, own.sramecc, own.xnack))}


def _load_on(module: Any, path: str, device_id: int | None) -> Any:
    """Load a program on a device. Raises `UsageError` if this module can only load on the current one.

    Hygon's MIGraphX has a device in `file_options`; AMD's loads on the current device of HIP. Source:
    qianqing13579/MIGraphX_Dynamic, src/load_save.cpp; ROCm/AMDMIGraphX, src/py/migraphx_py.cpp.
    """
    if not device_id:
        return module.load(path)
    if not re.search(r"\bdevice_id\b", getattr(module.load, "__doc__", None) or ""):
        raise UsageError(
            "The load function of this migraphx module takes no device.",
            hint=f"Start the process with HIP_VISIBLE_DEVICES={device_id}, and omit device_id.",
        )
    return module.load(path, device_id=device_id)


def _module() -> Any:
    try:
        import migraphx  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as problem:
        raise UsageError(
            f"The Python module migraphx cannot be imported: {problem}.",
            hint="Install ROCm's migraphx package and add its folder to PYTHONPATH (often /opt/rocm/lib).",
        ) from None
    if not callable(getattr(migraphx, "load", None)):
        raise UsageError(
            f"The installed migraphx module ({getattr(migraphx, '__file__', None) or 'a folder'}) is the empty "
            "placeholder package of the public Python index.",
            hint="Run `pip uninstall migraphx`. Add the folder of ROCm's module to PYTHONPATH (often /opt/rocm/lib).",
        )
    return migraphx


def _version(module: Any) -> str | None:
    """Return the version of the module; None where it is not a version, as `dev` in some builds."""
    found = re.match(r"[0-9]{1,6}\.[0-9]{1,6}(?:\.[0-9]{1,6})?(?![0-9])", str(getattr(module, "__version__", "")))
    return found[0] if found else None


def _refuse_other_version(found: Fetched, version: str | None) -> None:
    key = found.answer.artifact.key
    if version is None or target.split_version(version, "migraphx", zeros=True)[0] == key.migraphx:
        return
    raise MismatchError(
        f"The program is for MIGraphX {key.migraphx}, but the imported migraphx module is {version}.",
        hint=f"Omit migraphx=..., or run with the Python module of MIGraphX {key.migraphx}.",
        context={"differences": [{"field": "migraphx", "asked": key.migraphx, "found": version}]},
    )


def _check(found: Fetched, settings: Settings, options: RequestOptions) -> None:
    """Compare the file with this host, as `mxr check` does. Raises `MismatchError`."""
    from mxr.program import describe_file

    host = this_host(settings, options)
    hardware, toolchain = choose_hardware(options, host, [])
    description = describe_file(found.path).to_json()
    rows = [
        row
        for row in checks.check_compatibility(description, hardware, choose_toolchain(options, toolchain))
        if row.ok is False
    ]
    # `allow` was applied when the program was chosen. Every difference that remains here is an error.
    if rows:
        raise MismatchError(
            f"{found.path} cannot be loaded on this host: "
            + "; ".join(f"{row.field}: required {row.needed}, found {row.found} ({row.why})" for row in rows)
            + ".",
            hint="The program was published with a wrong label. `mxr check FILE` lists all requirements.",
            context={"differences": [{"field": row.field, "asked": row.needed, "found": row.found} for row in rows]},
        )


def _explained(problem: Exception, found: Fetched) -> MxrError:
    from mxr.known_failures.explainer import find_failures

    text = f"{type(problem).__name__}: {problem}"
    known = find_failures(text)
    context = {"path": str(found.path), "text": text, "explanations": [each.to_json() for each in known]}
    if not known:
        return MismatchError(
            f"MIGraphX cannot load {found.path}: {problem}.",
            hint=f"Compare its requirements with this host: `mxr check {shell_quoted(found.path)}`.",
            context=context,
        )
    first = known[0]
    return KINDS.get(first.failure.kind, MismatchError)(first.means, hint=first.fix, context=context)
