"""`mxr export`: write artifacts to a bundle for offline use."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from mxr.display.text import counted
from mxr.errors import NoSuchArtifactError, UsageError
from mxr.plans.lockfile import LockFile, load_lock
from mxr_cli.fetching.fetch_options import OrtOptions, ort_options
from mxr_cli.help import command
from mxr_cli.options import Session, common
from mxr_cli.output import echo, format_size, print_json
from mxr_cli.rows import model_filter

ID = re.compile(r"[0-9a-f]{8,64}")


@command(usual=("output", "static", "models", "everything", "prune", "oci", "include_removed", "as_json"))
@click.argument("sources", metavar="LOCK|ID...", nargs=-1)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The bundle to write.")
@click.option("--include-removed", is_flag=True, help="Export also artifacts that were removed from the registry.")
@click.option(
    "--static",
    metavar="PLACE",
    help="Write a registry that is files instead, or bring it up to date: a folder, or s3://BUCKET/PREFIX.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="With --static: all artifacts of this model: an ONNX file, its identity, or how its name begins; repeatable.",
)
@click.option(
    "--all", "everything", is_flag=True, help="With --static: all artifacts; those that are gone go there, too."
)
@click.option(
    "--oci",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write container images instead, one for each GPU of the LOCK, to an OCI image layout.",
)
@click.option("--prune", is_flag=True, help="With --static: remove files that nothing has named for a day.")
@ort_options
@common
def export(
    session: Session,
    sources: tuple[str, ...],
    output: Path | None,
    include_removed: bool,
    static: str | None,
    oci: Path | None,
    ort: OrtOptions,
    **written: Any,
) -> None:
    """Write the artifacts of a LOCK, or the artifacts with these IDs, to a tar file for hosts without network access,
    or with --static to a place that is a registry without a server, or with --oci to container images.

    Data that several artifacts share is stored once. The same lock always gives the same bytes. The tar is an OCI image
    layout: oras can copy it to any OCI registry, under the tag mxr.

    An artifact that the registry removed is refused, also where the cache still has it (exit code 3): it may have been
    removed because it is wrong.

    \b
    mxr export mxr.lock -o bundle.tar
    mxr import bundle.tar                          on the host without network access
    mxr export --static /srv/mxr mxr.lock          files, which any web server serves
    mxr export --static s3://models/mxr --all      objects of a bucket, with the AWS settings of this host
    mxr fetch model.onnx --registry https://cdn.example.com/mxr
    mxr export --oci images/ mxr.lock              one image for each GPU, whose files are in /models
    """
    if [output, static, oci].count(None) != 2:
        raise UsageError("Where to?", hint="Give -o FILE for a bundle, --static PLACE, or --oci DIR.")
    if static is None and any(written.values()):
        raise UsageError("--model, --all and --prune need --static.", hint="Add --static PLACE.")
    if not sources and not (written["everything"] or written["models"]):
        raise UsageError(
            "There is nothing to export.", hint="Give a lock file, ids of artifacts, or --static with --model or --all."
        )
    if static is not None:
        _export_static(session, sources, static, **written)
        return
    if oci is not None:
        _export_images(session, sources, oci, ort)
        return
    assert output is not None
    from mxr.bundle import exporter

    lock, identities = _parse_sources(sources)
    cache, client = session.cache(), session.client()
    records = exporter.collect_records(lock, identities, cache, client, include_removed=include_removed)
    done = exporter.export(records, lock, output, cache, client, exporter.signed_recalls(client))
    if session.as_json:
        print_json(
            {
                "bundle": str(done.path),
                "size": done.size,
                "blobs": done.blobs,
                "artifacts": list(done.artifacts),
            }
        )
        return
    echo(f"{done.path}: {counted(len(done.artifacts), 'artifact')}, {format_size(done.size)}")


def _export_static(
    session: Session, sources: tuple[str, ...], where: str, *, models: tuple[str, ...], everything: bool, prune: bool
) -> None:
    from mxr.bundle import static_export, static_places
    from mxr.plans import pins

    if (sources or models) and everything:
        raise UsageError("--all needs no LOCK, no ID and no --model.", hint="Omit one of them.")
    place, client = static_places.open_place(where), session.client()
    if everything:
        artifacts = list(static_export.all_artifacts(client))
    else:
        lock, identities = _parse_sources(sources)
        entries = lock.entries if lock else ()
        artifacts = [pins.check_pinned(entry, client.artifact(entry.id)) for entry in entries]
        artifacts += [client.artifact(identity) for identity in identities]
        for model in models:
            found = list(static_export.all_artifacts(client, **model_filter(session, model, follow_links=False)))
            if not found:
                raise NoSuchArtifactError(f"The registry has no artifact of {model} that can be exported.")
            artifacts += found
    writer = static_export.StaticWriter(place, client, session.cache())
    done = writer.write(artifacts, whole=everything, prune=prune)
    if session.as_json:
        document = {"place": done.where, "artifacts": done.artifacts, "models": done.models}
        print_json({**document, "written": done.written, "size": done.size, "pruned": done.pruned})
        return
    pruned = f", {counted(done.pruned, 'file')} removed" if prune else ""
    what = f"{counted(done.artifacts, 'artifact')} of {counted(done.models, 'model')}"
    echo(f"{done.where}: {what}; {counted(done.written, 'file')} written, {format_size(done.size)}{pruned}")


def _export_images(session: Session, sources: tuple[str, ...], layout: Path, ort: OrtOptions) -> None:
    from mxr.bundle import exporter, images
    from mxr.util import disk
    from mxr_cli.fetching.locked import write_locked

    lock, identities = _parse_sources(sources)
    if lock is None or identities:
        raise UsageError("--oci needs a LOCK: it says for which programs to write.", hint="Write one with `mxr lock`.")
    cache, client = session.cache(), session.client()
    writer, rows = images.ImageWriter(layout), []
    for arch in images.archs_of(entry.request.key for entry in lock.entries):
        part = lock if arch is None else lock.for_archs([arch])
        records = exporter.collect_records(part, (), cache, client)
        stage = disk.partial_name(layout, "stage")
        try:
            done = write_locked(session, part, Path(sources[0]), stage, ort)
            home = f"/{images.ROOT}"
            settings = dict.fromkeys(line.replace(str(stage.absolute()), home) for line in done)
            image = images.ProgramImage(arch or "ref", stage, tuple(records), tuple(settings))
            rows.append((writer.add(image), image))
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    writer.finish()
    if session.as_json:
        found = [{**asdict(written), "settings": list(image.settings)} for written, image in rows]
        print_json({"layout": str(layout), "images": found})
        return
    for written, image in rows:
        size = format_size(written.size)
        echo(f"{layout}:{written.tag}: {counted(len(image.records), 'artifact')}, {size}, {written.digest}")
        for line in image.settings:
            echo(f"  {line}")


def _parse_sources(sources: tuple[str, ...]) -> tuple[LockFile | None, list[str]]:
    """The lock and the artifact ids in the arguments. An existing file is a lock, whatever its name.

    Raises `UsageError`.
    """
    lock: LockFile | None = None
    identities = []
    for source in sources:
        if ID.fullmatch(source) and not Path(source).exists():
            identities.append(source)
        elif lock is None:
            lock = load_lock(Path(source))
        else:
            raise UsageError("A bundle can contain only one lock.", hint="Export each lock to a bundle of its own.")
    return lock, identities
