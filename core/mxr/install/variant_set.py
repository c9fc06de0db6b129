"""Several variants of one model as one: all of them or none, side by side in a folder, with a list of them.

    <folder>/<stem>-b1.mxr ...      under the names that the consumer looks for, where those tell the variants apart
    <folder>/mxr-set.json           {"version", "model", "batches": {"1": {"file","sha256","id","digest","key"}}}

A folder that was not there appears whole, by one rename. In one that is there already, every file is first brought
beside its place; then each is renamed into it, the list last. A power cut in between leaves files of two sets; their
sha256s in the list tell, and the same command again completes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.errors import MxrError, NoSuchArtifact, NotAllowed, Usage
from mxr.request import builder
from mxr.request.builder import BuiltRequest, Options
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched, FoundArtifact, Watch, unwatched

from . import consumer_folder, ledger

if TYPE_CHECKING:
    from mxr.cache.store import Cache
    from mxr.host_facts import Host
    from mxr.request.model import ModelReference

LIST = "mxr-set.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class PlacedSet:
    """Where a set is: its folder, the list in it, and the file of each batch size."""

    folder: Path
    listing: Path
    files: Mapping[int, Path]


def ask(options: Options, batches: Sequence[int], subject: ModelReference, host: Host) -> dict[int, BuiltRequest]:
    """The request for each batch size. Raises `Usage`."""
    if not batches:
        raise Usage("A set has at least one batch size.", hint="Write --batch 1,2,4.")
    return {batch: builder.ask(replace(options, batch=batch), subject, host) for batch in batches}


def look(
    wanted: Mapping[int, BuiltRequest], cache: Cache, connect: Connect | None, *, refresh: bool = False
) -> tuple[dict[int, FoundArtifact], dict[int, NoSuchArtifact]]:
    """What each variant gets, and those for which there is nothing; nothing moves yet."""
    found: dict[int, FoundArtifact] = {}
    missing: dict[int, NoSuchArtifact] = {}
    for batch, asked in wanted.items():
        try:
            found[batch] = fetch_workflow.look(asked.request, cache, connect, refresh=refresh)
        except NoSuchArtifact as problem:
            missing[batch] = problem
    return found, missing


def fetch(
    wanted: Mapping[int, BuiltRequest],
    cache: Cache,
    connect: Connect | None,
    *,
    refresh: bool = False,
    watch: Watch = unwatched,
) -> dict[int, Fetched]:
    """All variants, in the cache: one that is missing is found out before anything moves.

    Weights that variants share are fetched with the first of them, and copied for the others. Raises `NoSuchArtifact`
    naming all that are missing; for the rest see `fetching.fetch`.
    """
    found, missing = look(wanted, cache, connect, refresh=refresh)
    if missing:
        raise lacking(missing, len(wanted))
    return bring(wanted, found, cache, watch=watch)


def bring(
    wanted: Mapping[int, BuiltRequest], found: Mapping[int, FoundArtifact], cache: Cache, *, watch: Watch = unwatched
) -> dict[int, Fetched]:
    """The variants that were found, in the cache, one after the other."""
    return {
        batch: fetch_workflow.bring(wanted[batch].request, each, cache, watch=watch) for batch, each in found.items()
    }


def lacking(missing: Mapping[int, NoSuchArtifact], of: int) -> NoSuchArtifact:
    """The error for a set that is not whole."""
    rows = [{"batch": batch, "message": each.message, **each.detail} for batch, each in missing.items()]
    first = next(iter(missing.values()))
    return NoSuchArtifact(
        f"{len(missing)} of the {of} variants are missing (batch {', '.join(map(str, missing))}), so that none is "
        f"handed out. {first.message}",
        hint="Have them compiled together with --on-miss wait, or ask for those that are there.",
        detail={"missing": rows, "nearest": first.detail.get("nearest", [])},
    )


def file_names(wanted: Mapping[int, BuiltRequest], stem: str) -> dict[int, str]:
    """What each variant is called in one folder. Raises `Usage` where the consumer takes no plain files."""
    for each in wanted.values():
        if each.consumer.name_file is None:
            raise Usage(
                f"A set is of plain files, and {each.consumer.name} takes a layout of its own ({each.consumer.tree}).",
                hint="Fetch each size by itself: --batch N -o FOLDER/, with --name where names would meet.",
            )
    plain = {batch: each.consumer.file_name(stem, each.request.key) for batch, each in wanted.items()}
    if len(set(plain.values())) == len(plain):
        return plain
    return {batch: f"{name.removesuffix('.mxr')}-b{batch}.mxr" for batch, name in plain.items()}


def place(
    fetched: Mapping[int, Fetched],
    wanted: Mapping[int, BuiltRequest],
    subject: ModelReference,
    output: str | os.PathLike[str],
    cache: Cache,
    *,
    link: bool = False,
    name: str | None = None,
    force: bool = False,
) -> PlacedSet:
    """Puts a whole set into the folder `output`: see the head of this file for what all or none means there.

    Files are reflinks or copies of those in the cache, or with `link` hard links; `name` in place
    of the model's. Where the consumer's layouts are recorded, files of others are only replaced with `force`. Raises
    `Usage`, `NotAllowed`, or a disk fault.
    """
    folder = Path(output)
    check_output(output)
    names = file_names(wanted, name or subject.stem)
    there = folder.is_dir()
    stage = disk.partial_name(folder if there else folder.parent, folder.name)
    put = disk.link_whole if link else disk.copy_whole
    try:
        with disk.faults(folder):
            stage.mkdir(parents=True)
        for batch, each in fetched.items():
            put(each.path, stage / names[batch])
        disk.write_whole(stage / LIST, _listing(fetched, names, subject))
        rows = {names[batch]: each.answer.artifact for batch, each in fetched.items()}
        consumer = next(iter(wanted.values())).consumer
        recorded = consumer.lay_out is not None
        if recorded and not there:
            ledger.write(stage, ledger.Ledger(consumer_folder.slots(consumer.name, rows)))
        claim = (
            consumer_folder.claimed(folder, consumer.name, rows, cache, force=force)
            if recorded and there
            else nullcontext()
        )
        with claim, disk.faults(folder):
            _into(stage, folder, [*names.values(), LIST]) if there else _whole(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return PlacedSet(folder, folder / LIST, {batch: folder / names[batch] for batch in fetched})


def check_output(output: str | os.PathLike[str]) -> None:
    """Finds out before anything moves whether `output` can be the folder of a set. Raises `Usage`."""
    if not os.fspath(output):
        raise Usage("The output path is empty.", hint="Give -o FOLDER/, or leave it out.")
    if Path(output).exists() and not Path(output).is_dir():
        raise Usage(f"{output} is a file, and several programs need a folder.", hint="Give -o FOLDER/.")


def _into(stage: Path, folder: Path, names: Sequence[str]) -> None:
    for name in names:
        if (folder / name).is_dir():
            raise NotAllowed(f"{folder / name} is a folder, in the place of a file.", hint="Remove it, or rename it.")
    for name in names:
        (stage / name).replace(folder / name)
    disk.sync_folder(folder)


def _whole(stage: Path, folder: Path) -> None:
    disk.sync_folder(stage)
    stage.rename(folder)
    disk.sync_folder(folder.parent)


def _listing(fetched: Mapping[int, Fetched], names: Mapping[int, str], subject: ModelReference) -> bytes:
    import json

    rows = {
        str(batch): {
            "file": names[batch],
            "sha256": each.answer.artifact.sha256,
            "id": each.answer.artifact.id,
            "digest": each.answer.artifact.digest,
            "key": each.answer.artifact.key.to_json(),
        }
        for batch, each in sorted(fetched.items())
    }
    document: dict[str, Any] = {"version": VERSION, "model": subject.model, "batches": rows}
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def worst(problems: Sequence[MxrError]) -> MxrError:
    """Of several failures the one whose number a program exits with: 5 before 8 before 75 before 4, then the first."""
    order = {exit: at for at, exit in enumerate((5, 8, 75, 4))}
    return min(problems, key=lambda each: order.get(each.exit, len(order)))
