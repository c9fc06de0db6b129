"""The commands that help after a miss, worded here: the registry sends what is missing as data."""

from __future__ import annotations

from collections.abc import Mapping

from mxr.artifact import target
from mxr.artifact.attributes import ALLOWANCES, Request
from mxr.display.text import shell_quoted
from mxr.errors import NoSuchArtifactError


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
        return f"To accept artifact {artifact}, omit --exact."
    if isinstance(allow, list) and allow and all(name in ALLOWANCES for name in allow):
        patch = ", and state no patch of ROCm" if "rocm_patch" in accept else ""
        return f"To accept artifact {artifact}, use `--allow {','.join(allow)}`{patch}."
    return ""


def push_command(request: Request) -> str:
    """Return the `mxr push` command that publishes the requested program, without backticks."""
    key, constraints = request.key, request.constraints
    words = ["mxr", "push", "FILE.mxr", "--model", "MODEL.onnx"]
    if key.kind == "ref":
        words += ["--kind", "ref"]
    else:
        words += ["--vendor", "hygon"] if key.vendor == "hygon" else []
        words += ["--arch", str(target.GfxArch(key.arch or "", constraints.sramecc, constraints.xnack))]
        words += ["--num-cu", str(constraints.num_cu)] if constraints.num_cu else []
        words += ["--real-arch", constraints.real_arch] if constraints.real_arch else []
        words += ["--rocm", constraints.rocm_patch or key.rocm or ""]
    words += ["--migraphx", constraints.migraphx_patch or key.migraphx]
    for name, shape in key.inputs:
        words += ["--input", f"{name}={target.show_dims(shape)}"]
    words += ["--precision", "+".join(key.precision) or "fp32"]
    words += ["--calibration", "FILE"] if key.calibration else []
    words += ["--offload-copy" if key.offload_copy else "--no-offload-copy"]
    words += ["--fast-math" if key.fast_math else "--no-fast-math"]
    for name, value in key.env:
        words += ["--env", f"{name}={value}"]
    for name, value in key.options:
        words += ["--option", f"{name}={value}"]
    words += ["--tuning", constraints.tuning] if constraints.tuning else []
    return " ".join(map(shell_quoted, words))
