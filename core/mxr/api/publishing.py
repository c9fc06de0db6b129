"""`mxr.push`, `mxr.lock` and `mxr.precompile`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.records import Artifact
from mxr.artifact.target import DynamicDim
from mxr.cache.store import Cache
from mxr.display.progress import Display, shown_by
from mxr.plans.lockfile import LockFile, load_lock, save_lock
from mxr.plans.locking import NamedRequest, lock_requests
from mxr.plans.matrix_run import CellRequest, MatrixStatus, follow, matrix_status, prepare, queue_missing
from mxr.plans.plan import OnMiss
from mxr.request import model as models
from mxr.request.defaults import default_batches
from mxr.settings import Settings
from mxr.workflows import preparation

from .calls import (
    configured_defaults,
    connection,
    host_of_this_program,
    library_call,
    library_settings,
    log_warnings,
    make_options,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mxr.client.registry import Client
    from mxr.request.builder import OptionArguments, RequestOptions


@library_call
def push(
    file: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    amend: bool = False,
    restore: bool = False,
    also_for: bool = False,
    progress: Display | None = None,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> Artifact:
    """Publish a compiled program of a model (its ONNX file or its identity), and return its artifact.

    What the file does not contain is stated by `options`, as for `mxr push`; nothing is taken from this host. Warnings
    are logged. Raises `MismatchError` where the file contradicts its label, `UsageError` for what is missing,
    `ConflictError`, `NotAllowedError`, `UnreachableError`.

        mxr.push("model.mxr", "model.onnx", rocm="7.2.1", consumer="python")
    """
    from mxr.install.publishing import publish_file
    from mxr.protocol.artifacts import PublicationIntent

    settings = settings or library_settings()
    request = make_options(inputs, options, settings.consumer)
    intent = PublicationIntent(amend=amend, also_for=also_for, restore=restore)
    with shown_by(progress):
        done = publish_file(
            Path(file), os.fspath(model), request, Cache.of(settings), connection(settings), intent, tool="mxr.push"
        )
    log_warnings((*done.notes, *done.warnings))
    return done.artifact


@library_call
def lock(
    models: Iterable[str | os.PathLike[str]],
    file: str | os.PathLike[str] = "mxr.lock",
    *,
    batches: Sequence[int] = (),
    add: bool = False,
    register: str | None = None,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> LockFile:
    """Write a lock file with the artifact that each request gets now, and return it.

    A request for each model and each of `batches`; a model that ends with .yaml is a matrix, which has its own options.
    `add`: keep the other entries. `register`: protect the artifacts in the registry under this name. Raises
    `NoSuchArtifactError` with everything that is missing; then nothing is written.

        mxr.lock(["resnet50.onnx"], "deploy/mxr.lock", batches=[1, 8], arch="gfx908", rocm="7.2", migraphx="2.15")
    """
    settings, path = settings or library_settings(), Path(file)
    request = make_options(inputs, options, settings.consumer)
    names = [os.fspath(each) for each in models]
    base = load_lock(path) if add and path.exists() else LockFile(())
    requests = _requests(names, batches, request, settings)
    found = base.merged(lock_requests(requests, path.parent, connection(settings), {}))
    save_lock(found, path)
    if register is not None:
        connection(settings)().put_lock(register, found.ids)
    return found


def _requests(
    names: Sequence[str], batches: Sequence[int], request: RequestOptions, settings: Settings
) -> Iterator[NamedRequest]:
    cache, connect = Cache.of(settings), connection(settings)
    for name in names:
        if name.endswith((".yaml", ".yml")):
            cells = _cells(Path(name), (), settings, cache, follow_links=request.follow_links)
            yield from ((each.cell.name, each.prepared) for each in cells)
            continue
        defaults = configured_defaults(name, settings)
        known = models.find_model(name, cache, connect, follow_links=request.follow_links)
        for batch in batches or default_batches(request, defaults, known) or (request.batch,):
            each = replace(request, batch=batch)
            host = host_of_this_program(settings, each)
            yield name, preparation.prepare(each, known, cache, connect, host, defaults=defaults)


@library_call
def precompile(
    matrix: str | os.PathLike[str],
    *,
    on_miss: str = "wait",
    targets: Sequence[str] = (),
    retry: bool = False,
    progress: Display | None = None,
    settings: Settings | None = None,
) -> MatrixStatus:
    """Compile every program of a matrix that the registry does not have, and return the state of its cells.

    `on_miss`: "wait" or "wait=2h" (compile and wait), "ask" (queue), "fail" (only look). `targets`: only these, named
    as in `mxr plan`. Raises `CompileFailedError`, `NoWorkerError`, `NotCompiledError` or `NoSuchArtifactError` unless
    every program is there, with the document of `mxr precompile --json` as its context.

        mxr.precompile("matrix.yaml", on_miss="wait=2h")
    """
    from mxr.plans import matrix_reports

    settings, file = settings or library_settings(), Path(matrix)
    policy = OnMiss.parse(on_miss, ("fail", "ask", "wait"), retry=retry)
    deadline, client = policy.deadline(), connection(settings)()
    with shown_by(progress):
        status = matrix_status(client, _cells(file, targets, settings, Cache.of(settings)), file)
        _compile(client, status, policy, deadline)
    if error := matrix_reports.exit_error(status):
        error.context |= matrix_reports.report_document(status, file)
        raise error
    return status


def _compile(client: Client, status: MatrixStatus, policy: OnMiss, deadline: float | None) -> None:
    if policy.compiles:
        for _ in queue_missing(client, status, policy):
            pass
    if policy.waits:
        for _ in follow(client, status, deadline):
            pass


def _cells(
    file: Path, targets: Sequence[str], settings: Settings, cache: Cache, *, follow_links: bool = False
) -> tuple[CellRequest, ...]:
    from mxr.matrix import Variables, cells, read_matrix, select

    variables = Variables(dict(os.environ), ())
    selected = select(cells(read_matrix(file, variables, None, outside=False)), targets)
    return prepare(selected, file, cache, connection(settings), follow_links=follow_links)
