"""The functions of `import mxr`: the same ways that the command takes, for programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mxr.artifact.target import Inputs, Shape
from mxr.cache.store import Cache
from mxr.request.builder import BuiltRequest, Options
from mxr.request.model import ModelReference
from mxr.workflows.fetch import Connect, Fetched

from .errors import MxrError
from .host_facts import Host, combine, read_recorded
from .request import builder
from .request import model as subjects
from .settings import Settings, load
from .workflows import fetch as fetch_workflow

if TYPE_CHECKING:
    from mxr.client.registry import Client


def fetch(
    model: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    offline: bool = False,
    refresh: bool = False,
    force: bool = False,
    consumer_options: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    inputs: Mapping[str, Shape] | None = None,
    **said: Any,
) -> Fetched:
    """The right program for a model; what is not said is taken from this host. `.path` is where it is.

    `output` is a file, or a folder for the consumer's layout; `force` replaces files there that are not mxr's.
    `consumer_options` are the options of `mxr fetch` that apply to one consumer only, by name: `{"ort": "1.27.1"}`.
    `said` are the fields of `mxr.Options`: arch, rocm, migraphx, batch, precision, consumer, exact, allow and so on.
    Raises an `mxr.MxrError`: `NoSuchArtifact` with the nearest, `Unreachable`, `Damaged`, `Usage`.

        path = mxr.fetch("model.onnx", arch="gfx908", rocm="7.2", migraphx="2.15", batch=8).path
    """
    settings = settings or load(os.environ)
    cache = Cache(settings.cache_dir)
    connect = None if offline else connection(settings)
    options = Options(inputs=as_inputs(inputs), **({"consumer": settings.consumer} | said))
    subject, asked = prepare(options, os.fspath(model), cache, connect, this_host(settings, options))
    if output is None:
        return fetch_workflow.fetch(asked.request, cache, connect, refresh=refresh)
    from .install.installer import installer_for
    from .install.placement import OutputRequest

    installer = installer_for(asked.consumer)
    where = OutputRequest(output, force=force, consumer_options=consumer_options or {})
    installer.check(asked, subject, where, offline=offline)
    found = installer.find_recorded(asked, subject, where, cache, connect)
    if found is None:
        installer.check_unrecorded(asked, subject, where)
        found = fetch_workflow.fetch(asked.request, cache, connect, refresh=refresh)
    placed = installer.deliver(found, cache, asked, subject, where, connect)
    return Fetched(placed.path, found.source, found.answer)


def fetch_set(
    model: str | os.PathLike[str],
    batches: Sequence[int],
    *,
    output: str | os.PathLike[str] | None = None,
    offline: bool = False,
    refresh: bool = False,
    settings: Settings | None = None,
    inputs: Mapping[str, Shape] | None = None,
    **said: Any,
) -> dict[int, Fetched]:
    """The programs for several batch sizes: all of them or none. `.path` of each is where it is.

    With `output` they are put into that folder, with a list of them beside (`mxr-set.json`). For the rest see `fetch`;
    `NoSuchArtifact` names all that are missing.
    """
    from .install import variant_set

    settings = settings or load(os.environ)
    cache = Cache(settings.cache_dir)
    connect = None if offline else connection(settings)
    options = Options(inputs=as_inputs(inputs), **({"consumer": settings.consumer} | said))
    subject, host = subjects.find(os.fspath(model), cache, connect), this_host(settings, options)
    wanted = variant_set.ask(options, batches, subject, host)
    if output is not None:
        variant_set.check_output(output)
        variant_set.file_names(wanted, subject.stem)
    found = variant_set.fetch(wanted, cache, connect, refresh=refresh)
    if output is None:
        return found
    files = variant_set.place(found, wanted, subject, output, cache).files
    return {batch: Fetched(files[batch], each.source, each.answer) for batch, each in found.items()}


def connection(settings: Settings) -> Connect:
    """What makes the client of this registry, when one is needed: a fetch that the cache answers needs none."""

    def connect() -> Client:
        from mxr.client.registry import Client

        return Client(settings)

    return connect


def prepare(
    options: Options, model: str, cache: Cache, connect: Connect | None, host: Host
) -> tuple[ModelReference, BuiltRequest]:
    """The model and the request about it; where the toolchain is unknown, the error lists the registry's."""
    subject = subjects.find(model, cache, connect)

    def toolchains(xxh3: str, arch: str | None) -> list[str]:
        try:
            found = connect().artifacts(model=xxh3, arch=arch, limit=1000).artifacts if connect else ()
        except MxrError:
            return []
        rows = {(each.key.rocm, each.key.migraphx) for each in found}
        return sorted((f"--rocm {rocm} " if rocm else "") + f"--migraphx {migraphx}" for rocm, migraphx in rows)

    return subject, builder.ask(options, subject, host, toolchains)


def this_host(settings: Settings, options: Options | None = None, *, whole_node: bool = False) -> Host:
    """What this machine is, with a recorded set over it where the settings name one.

    With `options`, what they leave no question about is not looked for; a set that is named must be readable all the
    same. `whole_node` counts the GPUs that this container was not given, too.
    """
    recorded = read_recorded(settings.host_file) if settings.host_file else None
    said = options is not None and options.migraphx is not None
    if options is not None and said and options.kind == "ref":
        return Host()
    from .host_facts import detect

    unsaid = options is None or not said or options.rocm is None
    local = detect(environ=os.environ, toolchain=unsaid, whole_node=whole_node)
    return local if recorded is None else combine(recorded, local)


def as_inputs(inputs: Mapping[str, Shape] | None) -> Inputs:
    """Input shapes from a plain mapping of names to dims."""
    return tuple((name, tuple(shape)) for name, shape in (inputs or {}).items())
