"""Variant sets: several batch sizes of one model in one folder, with a list.

    <folder>/<stem>_b1.mxr ...      the names that the consumer reads, if they differ between the variants
    <folder>/mxr-set.json           {"version", "model", "batches": {"1": {"file","sha256","id","digest","key"}}}

The list is replaced last. A power cut in between leaves files of two sets: they differ from the sha256s in the list,
and the same command completes the set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.errors import UsageError, WouldOverwriteError
from mxr.facts import stated
from mxr.request.builder import PreparedRequest
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.workflows.fetch import Fetched

from . import overwriting
from .file_names import longer_name
from .placement import place_files

if TYPE_CHECKING:
    from mxr.cache.store import Cache
    from mxr.request.model import ModelReference

LIST = "mxr-set.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class PlacedSet:
    """A set that was placed: its folder, the list in it, and the file of each batch size."""

    folder: Path
    listing: Path
    files: Mapping[int, Path]


_SEPARATELY = {
    "": "Fetch each size separately: --batch N -o FOLDER/, with --name if two names would be equal.",
    "ort": "All shapes of a model with open dims have one file name there. Write a model for each size, `mxr freeze "
    "MODEL --batch 1,4 -o frozen/`, and fetch each: --on-miss wait records the files whose names cannot be predicted.",
}
"""What to do instead, by consumer."""


def file_names(prepared: Mapping[int, PreparedRequest], stem: str) -> dict[int, str]:
    """The file name of each variant in one folder. Raises `UsageError` if the consumer does not read plain files."""
    for each in prepared.values():
        if each.consumer.name_file is None:
            raise UsageError(
                f"A set consists of plain files, and {each.consumer.name} needs its own layout ({each.consumer.tree}).",
                hint=_SEPARATELY.get(each.consumer.name, _SEPARATELY[""]),
            )
    plain = {batch: each.consumer.file_name(stem, each.request.key) for batch, each in prepared.items()}
    if len(set(plain.values())) == len(plain):
        return plain
    return {batch: longer_name(name, f"b{batch}") for batch, name in plain.items()}


def place_set(
    fetched: Mapping[int, Fetched],
    prepared: Mapping[int, PreparedRequest],
    output: str | os.PathLike[str],
    cache: Cache,
    *,
    link: bool = False,
    name: str | None = None,
    force: bool = False,
) -> PlacedSet:
    """Place a complete set in the folder `output`, all or none.

    Files are reflinks or copies of those in the cache, or hard links with `link`. `name` replaces the name of the
    model. Files that mxr did not place for the same consumer and target are replaced only with `force`. Raises
    `UsageError`, `WouldOverwriteError`, or a disk fault.
    """
    folder, model = Path(output), next(iter(prepared.values())).model
    check_output(output)
    names = file_names(prepared, name or model.stem)
    place_files(
        folder,
        {
            names[batch]: (each.artifact, prepared[batch].request, prepared[batch].consumer.name)
            for batch, each in fetched.items()
        },
        cache,
        documents={LIST: _listing(fetched, names, model)},
        check_documents=lambda: _check_list(folder / LIST, model, force=force),
        link=link,
        force=force,
        model_files=model.files,
    )
    return PlacedSet(folder, folder / LIST, {batch: folder / names[batch] for batch in fetched})


def _check_list(path: Path, model: ModelReference, *, force: bool) -> None:
    """Raise `WouldOverwriteError` if the list may not be replaced."""
    if force:
        overwriting.refuse_forced(path)
    else:
        _refuse_other_list(path, model)


def _refuse_other_list(path: Path, model: ModelReference) -> None:
    """Raise `WouldOverwriteError` if the list is not that of a set of the same model."""
    import json

    with disk.faults(path, "read"):
        if not os.path.lexists(path):
            return
        try:
            plain = path.is_file() and not path.is_symlink()
            there = json.loads(path.read_bytes())["model"] if plain else "(not a plain file)"
        except (ValueError, LookupError, TypeError, RecursionError):
            there = "(not a list of a set)"
    if there != model.identity:
        raise WouldOverwriteError(
            f"{path} exists and belongs to something else: {str(there)[:60]}. Nothing was written.",
            hint=f"Move it away, give another folder, or replace it with {stated('force')}.",
        )


def check_output(output: str | os.PathLike[str]) -> None:
    """Check that `output` can be the folder of a set, before anything is downloaded. Raises `UsageError`."""
    if not os.fspath(output):
        raise UsageError("The output path is empty.", hint="Give -o FOLDER/, or omit it.")
    if Path(output).exists() and not Path(output).is_dir():
        raise UsageError(f"{output} is a file, but several programs need a folder.", hint="Give -o FOLDER/.")


def _listing(fetched: Mapping[int, Fetched], names: Mapping[int, str], model: ModelReference) -> bytes:
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
    document: dict[str, Any] = {"version": VERSION, "model": model.identity, "batches": rows}
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
