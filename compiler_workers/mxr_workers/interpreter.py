"""The Python interpreter that has migraphx: start its child processes, query what it supports, probe its targets.

A child gets an allow-list of the worker's environment, a folder of its own, and the key's MIGRAPHX_*.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mxr.artifact.compile_settings import backend_options, check_env
from mxr.consumers.ort.recording_form import OrtRuntime
from mxr.errors import UsageError
from mxr.sandbox.policy import SandboxPolicy, policy_for

from .failures import CompileFailure, classify
from .sandbox import ChildLimits, ChildLog, ChildObserver, ChildResult, run_child

ALLOWED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "ROCM_PATH", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
TUNING_PREFIXES = ("HSA_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_")
"""Prefixes of variables that can change the result or the speed of a compile: passed on, and recorded."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def child_environment(
    environ: Mapping[str, str],
    folder: Path,
    migraphx: Mapping[str, str],
    problem_cache: Path | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The complete environment of a child that runs in `folder`; `environ` is the worker's.

    `migraphx` are the key's variables, which are checked here once more: they come from the registry. They never
    replace a variable that the worker sets. The worker's own MIGRAPHX_* are never passed on, because the key does not
    contain them. `options` are the key's, for MIGraphX's GPU backend. Raises `UsageError` for a variable or an option
    that no key may set.
    """
    check_env(migraphx.items())
    found = {name: value for name, value in environ.items() if name in ALLOWED or name.startswith(TUNING_PREFIXES)}
    found.setdefault("PATH", DEFAULT_PATH)
    # NumPy's BLAS starts a thread for each core when it is imported, which count against the limits of the child, and
    # no child multiplies matrices with NumPy.
    own = {"HOME": str(folder), "TMPDIR": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    if problem_cache is not None:
        own["MIGRAPHX_PROBLEM_CACHE"] = str(problem_cache)
    if options:
        own["MIGRAPHX_GPU_OPTIONS"] = backend_options(options)
    return dict(migraphx) | found | own


def recorded_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a child that are recorded in the provenance of its program."""
    names = sorted(
        name for name in environment if name.startswith(TUNING_PREFIXES) or name.endswith("_VISIBLE_DEVICES")
    )
    return {name: environment[name] for name in names}


BUBBLEWRAP, LANDLOCK = "bubblewrap", "landlock"
"""What makes walls: namespaces, in which all that the other one closes is closed, too; or that alone."""

CHILD = Path(__file__).parent / "compiler"
DESCRIBE_LIMITS = ChildLimits(seconds=120, memory=8 << 30)
PROBE_LIMITS = ChildLimits(seconds=180, memory=16 << 30)
"""The first HIP program after the driver has started can take a minute."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`python`: absolute path. `environ`: the worker's environment, of which children see the allowed variables.

    `policy`: what walled children may read and write besides their own folder; without one, there are no walls.
    """

    python: Path
    environ: Mapping[str, str]
    policy: SandboxPolicy | None = field(default=None, kw_only=True)

    @property
    def way(self) -> str | None:
        """What makes the walls around its children; None without any."""
        if self.policy is None:
            return None
        return BUBBLEWRAP if self.policy.bubblewrap else LANDLOCK

    def argv(self, verb: str) -> list[str]:
        """The command of a child. It writes no bytecode, because the package folder may be read-only."""
        return [str(self.python), "-B", str(CHILD), verb]

    def run(  # noqa: PLR0913 - what a child needs
        self,
        verb: str,
        request: Mapping[str, Any],
        folder: Path,
        limits: ChildLimits,
        *,
        environment: Mapping[str, str] | None = None,
        log: ChildLog | None = None,
        observer: ChildObserver | None = None,
        reads: Sequence[Path] = (),
        writes: Sequence[Path] = (),
    ) -> ChildResult:
        """Run one child in `folder`. Without `environment` the child sees no MIGRAPHX_* variable.

        Behind walls, it reads `reads`, and writes `folder` and `writes`.
        """
        variables = environment if environment is not None else child_environment(self.environ, folder, {})
        walls = None
        if self.policy is not None:
            walls = self.policy.more(read=(CHILD, *reads), write=(folder, *writes))
        return run_child(self.argv(verb), request, folder, variables, limits, log=log, observer=observer, walls=walls)


@dataclass(frozen=True, slots=True)
class InterpreterInfo:
    """What an interpreter supports.

    `migraphx` is None where neither the module nor its files contain the version (2.0 to 2.6). `targets` are those
    whose library loads; whether they work is only known after `probe`. `refusals` say why the others do not load.
    `precisions` are those that its module can quantize to. `ort` is the ONNX Runtime whose MIGraphX provider works.
    `roots` are its folders.
    """

    python: str
    migraphx: str | None
    build: str
    targets: tuple[str, ...]
    precisions: tuple[str, ...]
    features: Mapping[str, bool]
    refusals: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None
    numpy: str | None = None
    ort: OrtRuntime | None = None
    roots: tuple[str, ...] = ()


def describe_interpreter(
    interpreter: Interpreter, folder: Path, limits: ChildLimits = DESCRIBE_LIMITS
) -> InterpreterInfo:
    """Query an interpreter in a child process. Raises `UsageError` where its migraphx or `folder` cannot be used."""
    log = ChildLog()
    try:
        ending = interpreter.run("describe", {}, folder, limits, log=log)
    except OSError as error:
        raise UsageError(
            f"Cannot use the folder {folder}: {error.strerror}.", hint="Set MXR_WORKER_SPOOL to a writable folder."
        ) from error
    if not ending.done:
        failure = classify(ending, log.tail, memory=limits.memory)
        raise UsageError(failure.message, hint=_hint(failure))
    found = dict(ending.result or {})
    lists = {name: tuple(found[name]) for name in ("targets", "precisions", "roots")}
    return InterpreterInfo(**{**found, **lists})


def probe(
    interpreter: Interpreter, kind: str, folder: Path, limits: ChildLimits = PROBE_LIMITS
) -> CompileFailure | None:
    """Compile and run a sum on a target, in a child process. Returns None where the target works, or its failure."""
    log = ChildLog()
    ending = interpreter.run("probe", {"kind": kind}, folder, limits, log=log)
    return None if ending.done else classify(ending, log.tail, memory=limits.memory)


def _hint(failure: CompileFailure) -> str:
    if failure.name == "placeholder":
        return "Run pip uninstall migraphx, install ROCm's migraphx, and name its interpreter with --python."
    if failure.name == "no-numpy":
        return (
            "Install numpy for that interpreter; where it is that of mxr-worker, `pip install '.[workers]'` in the "
            "checkout does."
        )
    return "Name an interpreter that has ROCm's migraphx with --python; PYTHONPATH may need ROCm's module folder."


def with_walls(
    interpreter: Interpreter, info: InterpreterInfo, protected: Sequence[Path], file_size: int, bubblewrap: str = ""
) -> Interpreter:
    """Return an interpreter whose children run behind walls: they read its folders, and nothing that is protected.

    `bubblewrap`: the program that makes namespaces for them; without one, Landlock closes the files.
    """
    named = [each for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "ROCM_PATH") for each in _paths(interpreter, name)]
    policy = replace(policy_for([*info.roots, *named], protected, file_size), bubblewrap=bubblewrap)
    return replace(interpreter, policy=policy)


def _paths(interpreter: Interpreter, variable: str) -> list[str]:
    return [each for each in interpreter.environ.get(variable, "").split(os.pathsep) if each.startswith("/")]


def open_walls(interpreter: Interpreter, folder: Path, protected: Sequence[Path]) -> list[Mapping[str, str]]:
    """Return what a child can do that it must not: `[{"property","what"}]`, as it found by trying.

    Raises `UsageError` where no child runs behind the walls.
    """
    log = ChildLog()
    found = [(str(each), each.stat()) for each in protected if each.exists()]
    request = {
        "worker": os.getpid(),
        "namespace": str(Path("/proc/self/ns/pid").readlink()),
        "protected": [(path, stat.st_dev, stat.st_ino) for path, stat in found],
    }
    ending = interpreter.run("walls", request, folder, DESCRIBE_LIMITS, log=log)
    if not ending.done:
        failure = classify(ending, log.tail, memory=DESCRIBE_LIMITS.memory)
        raise UsageError(
            f"No child of {interpreter.python} runs behind the walls of the sandbox: {failure.message}",
            hint="Set worker.sandbox to `off` if this host cannot have one (docs/compiling.md).",
        )
    return list(dict(ending.result or {})["open"])
