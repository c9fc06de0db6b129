"""Variant sets: several batch sizes of one model, fetched all together or not at all, in one folder with a list.

    <folder>/<stem>-b1.mxr ...      the names that the consumer reads, if they differ between the variants
    <folder>/mxr-set.json           {"version", "model", "batches": {"1": {"file","sha256","id","digest","key"}}}

The list is replaced last. A power cut in between leaves files of two sets: they differ from the sha256s in the list,
and the same command completes the set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.request_defaults import NO_DEFAULTS, RequestDefaults
from mxr.errors import MxrError, NoSuchArtifactError, UsageError, WouldOverwriteError
from mxr.facts import stated
from mxr.request import builder
from mxr.request.builder import PreparedRequest, RequestOptions
from mxr.request.defaults import apply_defaults
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched, LookupResult, Watch, unwatched

from . import overwriting
from .placement import place_files

if TYPE_CHECKING:
    from mxr.cache.store import Cache
    from mxr.host_facts import Host
    from mxr.request.model import ModelReference

Compile = Callable[[Sequence[int]], Mapping[int, str]]
"""Compiles the variants with these batch sizes. Returns the ids of their artifacts."""

LIST = "mxr-set.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class PlacedSet:
    """A set that was placed: its folder, the list in it, and the file of each batch size."""

    folder: Path
    listing: Path
    files: Mapping[int, Path]


def build_requests(
    options: RequestOptions,
    batches: Sequence[int],
    subject: ModelReference,
    host: Host,
    defaults: RequestDefaults = NO_DEFAULTS,
) -> dict[int, PreparedRequest]:
    """The request for each batch size. `defaults` fill what options and host leave open. Raises `UsageError`."""
    if not batches:
        raise UsageError("A set needs at least one batch size.", hint=f"Write {stated('batch', '1,2,4')}.")
    found: dict[int, PreparedRequest] = {}
    for batch in batches:
        completed, notes = apply_defaults(replace(options, batch=batch), defaults, subject, host)
        built = builder.build_request(completed, subject, host)
        found[batch] = replace(built, notes=(*notes, *built.notes))
    return found


def _lookup_variants(
    wanted: Mapping[int, PreparedRequest], cache: Cache, connect: Connect | None, *, refresh: bool = False
) -> tuple[dict[int, LookupResult], dict[int, NoSuchArtifactError]]:
    """Find the artifact of each variant, and the variants that have none. Downloads nothing."""
    found: dict[int, LookupResult] = {}
    missing: dict[int, NoSuchArtifactError] = {}
    for batch, asked in wanted.items():
        try:
            found[batch] = fetch_workflow.lookup(asked.request, cache, connect, refresh=refresh)
        except NoSuchArtifactError as problem:
            missing[batch] = problem
    return found, missing


def fetch_variants(
    wanted: Mapping[int, PreparedRequest],
    cache: Cache,
    connect: Connect | None,
    *,
    refresh: bool = False,
    watch: Watch = unwatched,
    compile: Compile | None = None,
) -> dict[int, Fetched]:
    """Fetch all variants into the cache; nothing is downloaded before all of them exist.

    `compile` makes the missing ones, given their batch sizes, and returns the ids of their artifacts. Weights that
    variants share are downloaded with the first variant and copied for the others. Raises `NoSuchArtifactError` that
    lists all missing variants; for other errors see `workflows.fetch.fetch`.
    """
    found, missing = _lookup_variants(wanted, cache, connect, refresh=refresh)
    if missing and (compile is None or connect is None):
        raise _missing_error(missing, len(wanted))
    compiled = compile(list(missing)) if missing and compile else {}
    fetched = {
        batch: fetch_workflow.download_found(wanted[batch].request, each, cache, watch=watch)
        for batch, each in found.items()
    }
    for batch, identity in compiled.items():
        assert connect is not None
        request = wanted[batch].request
        fetched[batch] = fetch_workflow.fetch_compiled(identity, request, cache, connect(), watch=watch)
    return dict(sorted(fetched.items()))


def _missing_error(missing: Mapping[int, NoSuchArtifactError], of: int) -> NoSuchArtifactError:
    """The error for a set with missing variants."""
    rows = [{"batch": batch, "message": each.message, **each.context} for batch, each in missing.items()]
    first = next(iter(missing.values()))
    return NoSuchArtifactError(
        f"{len(missing)} of the {of} variants are missing (batch {', '.join(map(str, missing))}), so none is "
        f"delivered. {first.message}",
        hint="Compile the missing variants with --on-miss wait, or request only the available ones.",
        context={"missing": rows, "nearest": first.context.get("nearest", [])},
    )


_SEPARATELY = {
    "": "Fetch each size separately: --batch N -o FOLDER/, with --name if two names would be equal.",
    "ort": "All shapes of a model with open dims have one file name there. Write a model for each size, `mxr freeze "
    "MODEL --batch 1,4 -o frozen/`, and fetch each: --on-miss wait records the files whose names cannot be predicted.",
}
"""What to do instead, by consumer."""


def file_names(wanted: Mapping[int, PreparedRequest], stem: str) -> dict[int, str]:
    """The file name of each variant in one folder. Raises `UsageError` if the consumer does not read plain files."""
    for each in wanted.values():
        if each.consumer.name_file is None:
            raise UsageError(
                f"A set consists of plain files, and {each.consumer.name} needs its own layout ({each.consumer.tree}).",
                hint=_SEPARATELY.get(each.consumer.name, _SEPARATELY[""]),
            )
    plain = {batch: each.consumer.file_name(stem, each.request.key) for batch, each in wanted.items()}
    if len(set(plain.values())) == len(plain):
        return plain
    return {batch: f"{name.removesuffix('.mxr')}-b{batch}.mxr" for batch, name in plain.items()}


def place_set(
    fetched: Mapping[int, Fetched],
    wanted: Mapping[int, PreparedRequest],
    subject: ModelReference,
    output: str | os.PathLike[str],
    cache: Cache,
    *,
    link: bool = False,
    name: str | None = None,
    force: bool = False,
) -> PlacedSet:
    """Place a complete set in the folder `output`, all or none.

    Files are reflinks or copies of those in the cache, or hard links with `link`. `name` replaces the name of the
    model. Files that mxr did not place for the same consumer and subject are replaced only with `force`. Raises
    `UsageError`, `WouldOverwriteError`, or a disk fault.
    """
    folder = Path(output)
    check_output(output)
    names = file_names(wanted, name or subject.stem)
    place_files(
        folder,
        {
            names[batch]: (each.artifact, wanted[batch].request, wanted[batch].consumer.name)
            for batch, each in fetched.items()
        },
        cache,
        documents={LIST: _listing(fetched, names, subject)},
        check_documents=lambda: _check_list(folder / LIST, subject, force=force),
        link=link,
        force=force,
        model_files=subject.files,
    )
    return PlacedSet(folder, folder / LIST, {batch: folder / names[batch] for batch in fetched})


def _check_list(path: Path, subject: ModelReference, *, force: bool) -> None:
    """Raise `WouldOverwriteError` if the list may not be replaced."""
    if force:
        overwriting.refuse_forced(path)
    else:
        _refuse_other_list(path, subject)


def _refuse_other_list(path: Path, subject: ModelReference) -> None:
    """Raise `WouldOverwriteError` if the list is not that of a set of the same model."""
    import json

    with disk.faults(path, "read"):
        if not os.path.lexists(path):
            return
        try:
            plain = path.is_file() and not path.is_symlink()
            model = json.loads(path.read_bytes())["model"] if plain else "(not a plain file)"
        except (ValueError, LookupError, TypeError, RecursionError):
            model = "(not a list of a set)"
    if model != subject.model:
        raise WouldOverwriteError(
            f"{path} exists and belongs to something else: {str(model)[:60]}. Nothing was written.",
            hint=f"Move it away, give another folder, or replace it with {stated('force')}.",
        )


def check_output(output: str | os.PathLike[str]) -> None:
    """Check that `output` can be the folder of a set, before anything is downloaded. Raises `UsageError`."""
    if not os.fspath(output):
        raise UsageError("The output path is empty.", hint="Give -o FOLDER/, or omit it.")
    if Path(output).exists() and not Path(output).is_dir():
        raise UsageError(f"{output} is a file, but several programs need a folder.", hint="Give -o FOLDER/.")


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


def decisive_error(problems: Sequence[MxrError]) -> MxrError:
    """The failure that determines the exit code: 5 before 8 before 75 before 4, then the first of the others."""
    order = {exit: at for at, exit in enumerate((5, 8, 75, 4))}
    return min(problems, key=lambda each: order.get(each.exit, len(order)))
