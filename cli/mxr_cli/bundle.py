"""`mxr export` and `mxr import`: what was locked, carried to where there is no network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from mxr.errors import Usage
from mxr.lockfiles.lockfile import LockFile, load, write
from mxr.request.builder import Options
from mxr.util import disk

from .options import Session, common, request
from .ort import SAID, ort_options, record
from .output import document, note, say, size, watch

ID = re.compile(r"[0-9a-f]{8,64}")


@click.command(short_help="Write a bundle of artifacts, to be carried to where there is no network.")
@click.argument("what", metavar="LOCK|ID...", nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The bundle to write."
)
@common
def export(session: Session, what: tuple[str, ...], output: Path) -> None:
    """Write all artifacts of a LOCK, or those of these IDs, into one tar: nothing else is needed on the other side.

    Bytes that artifacts share are in it once. The same lock makes the same bytes. Interrupted, the same command goes
    on. The tar is an OCI image layout: oras copies it into any registry, under the tag mxr.

    \b
    mxr export mxr.lock -o bundle.tar
    mxr import bundle.tar                          on the other side
    """
    from mxr.bundle import exporter

    lock, identities = _named(what)
    cache, client = session.cache(), session.client()
    records = exporter.gather(lock, identities, cache, client)
    done = exporter.export(records, lock, output, cache, client, watch=watch("exporting"))
    if session.as_json:
        rest = {"size": done.size, "blobs": done.blobs, "kept": done.kept, "artifacts": list(done.artifacts)}
        document({"bundle": str(done.path), **rest})
        return
    if done.kept:
        note(f"mxr: {size(done.kept)} were there from an interrupted export")
    say(f"{done.path}: {len(done.artifacts)} artifacts, {size(done.size)}")


def _named(what: tuple[str, ...]) -> tuple[LockFile | None, list[str]]:
    """The lock and the ids among these words. Raises `Usage`."""
    found: LockFile | None = None
    identities = []
    for word in what:
        if ID.fullmatch(word) and not Path(word).exists():
            identities.append(word)
        elif found is None:
            found = load(Path(word))
        else:
            raise Usage("A bundle is of one lock.", hint="Export each lock into a bundle of its own.")
    return found, identities


@click.command("import", short_help="Bring a bundle into the cache or a registry, or record ONNX Runtime's files.")
@click.argument("bundle", metavar="[BUNDLE]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--into",
    type=click.Choice(["cache", "registry"]),
    help="The cache of this host (default), or the registry.",
)
@click.option("--lock", "lock_file", type=click.Path(path_type=Path), metavar="FILE", help="Write its lock here.")
@click.option(
    "--ort-cache",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Instead of BUNDLE: publish what ONNX Runtime's provider wrote to this folder on a host that ran MODEL.",
)
@click.option("--model", metavar="MODEL", help="With --ort-cache: the model that was run.")
@ort_options
@request
@common
def import_(
    session: Session,
    options: Options,
    batches: tuple[int, ...],
    bundle: Path | None,
    into: str | None,
    lock_file: Path | None,
    **said: Any,
) -> None:
    """Bring all artifacts of BUNDLE (a tar that mxr export wrote, or an OCI layout folder) into the cache of this host
    or into a registry.

    Every byte is checked before anything is written: a bundle that is cut short or changed is refused (exit 65). What
    is there already is passed over, so that the same command goes on where it was interrupted. From then on mxr fetch
    --locked and --offline serve what the bundle's lock asks for.

    \b
    mxr import bundle.tar --lock mxr.lock
    mxr import bundle.tar --into registry --registry http://registry.inside:8765

    With --ort-cache the true set of ONNX Runtime's files is published as one artifact, and mxr fetch --for ort takes it
    before it predicts a name. Say all of the request: --arch in full (gfx942:sramecc+:xnack-), --rocm and --migraphx,
    and by --ort... which ONNX Runtime ran.

    
    mxr import --ort-cache FOLDER --model model.onnx --arch gfx942:sramecc+:xnack- --rocm 7.2 --migraphx 2.15
    """
    if said["ort_cache"] is not None:
        if bundle is not None or lock_file is not None or into == "cache" or batches:
            raise Usage(
                "--ort-cache publishes one recorded set to the registry.",
                hint="Leave BUNDLE, --lock, --into cache and lists of --batch out.",
            )
        if said["model"] is None:
            raise Usage("--ort-cache needs the model that was run.", hint="Add --model model.onnx.")
        _record(session, said, options)
        return
    if bundle is None:
        raise Usage("No bundle is given.", hint="Write mxr import BUNDLE, or mxr import --ort-cache FOLDER.")
    if options != Options(consumer=options.consumer) or batches or any(said.values()):
        raise Usage("A bundle says itself what it holds.", hint="Options of a request go with --ort-cache.")
    _bring(session, bundle, into or "cache", lock_file)


def _record(session: Session, said: Mapping[str, Any], options: Options) -> None:
    words = {name: str(said[name]) for name in SAID if said[name]}
    found = record(session, said["ort_cache"], options, said["model"], words)
    if session.as_json:
        document(found)
        return
    say(found["id"])
    for name in found["files"]:
        note(f"mxr: recorded {name}")


def _bring(session: Session, bundle: Path, into: str, lock_file: Path | None) -> None:
    from mxr.bundle import importer
    from mxr.bundle.image_layout import open_layout

    with closing(open_layout(bundle)) as layout:
        contents = importer.check(layout, watch("checking"))
        if lock_file is not None and contents.lock is None:
            raise Usage(f"{bundle} was exported by ids, and has no lock.", hint="Leave --lock out.")
        if into == "cache":
            done = importer.into_cache(layout, contents, session.cache(), watch("importing"))
        else:
            done = importer.into_registry(layout, contents, session.client(), watch("importing"))
    if lock_file is not None and contents.lock is not None:
        disk.write_whole(lock_file, write(contents.lock).encode())
    new = sum(each.new for each in done)
    if session.as_json:
        rows = [{"id": each.id, "new": each.new} for each in done]
        document(
            {"bundle": str(bundle), "into": into, "lock": str(lock_file) if lock_file else None, "artifacts": rows}
        )
    else:
        say(f"{bundle}: {len(done)} artifacts, {new} new in the {into}")
