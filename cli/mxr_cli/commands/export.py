"""`mxr export`: write artifacts to a bundle for offline use."""

from __future__ import annotations

import re
from pathlib import Path

import click

from mxr.display.text import counted
from mxr.errors import UsageError
from mxr.plans.lockfile import LockFile, load_lock
from mxr_cli.help import command
from mxr_cli.options import Session, common
from mxr_cli.output import echo, format_size, print_json

ID = re.compile(r"[0-9a-f]{8,64}")


@command()
@click.argument("sources", metavar="LOCK|ID...", nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The bundle to write."
)
@click.option("--include-removed", is_flag=True, help="Export also artifacts that were removed from the registry.")
@common
def export(session: Session, sources: tuple[str, ...], output: Path, include_removed: bool) -> None:
    """Write the artifacts of a LOCK, or the artifacts with these IDs, to a tar file for hosts without network access.

    Data that several artifacts share is stored once. The same lock always gives the same bytes. The tar is an OCI image
    layout: oras can copy it to any OCI registry, under the tag mxr.

    An artifact that the registry removed is refused, also where the cache still has it (exit code 3): it may have been
    removed because it is wrong.

    \b
    mxr export mxr.lock -o bundle.tar
    mxr import bundle.tar                          on the host without network access
    """
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
