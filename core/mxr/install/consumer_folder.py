"""Writes a layout into a folder that a consumer reads: completely, in order, and never over files of others.

The consumer may watch the folder, and it acts on the last piece of a layout. Pieces that change are therefore replaced
only while the last piece is absent, and folders that must appear complete are renamed into place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from mxr.artifact.attributes import Request
from mxr.artifact.manifest import check_name
from mxr.artifact.records import Artifact
from mxr.cache.store import Cache
from mxr.consumers.layout import Delivery, Layout, LayoutFile
from mxr.errors import MxrError, NotAllowedError, TemporaryError, UsageError, WouldOverwriteError
from mxr.facts import stated
from mxr.util import disk
from mxr.util.disk import FileState
from mxr.util.hashing import sha256_memoised

from . import ledger, overwriting
from .ledger import Ledger, LedgerEntry, LedgerSlot, LedgerSubject
from .model_beside import refuse_another_model

MAX_PART_LENGTH = 255
"""Maximum bytes of one part of a path. Source: Linux, include/uapi/linux/limits.h, NAME_MAX."""


def write_layout(
    layout: Layout,
    delivery: Delivery,
    consumer: str,
    cache: Cache,
    *,
    link: bool = False,
    force: bool = False,
    model_files: Sequence[Path] = (),
) -> None:
    """Write a layout into its folder and replace what mxr placed there before for the same consumer and subject.

    Raises `WouldOverwriteError` if it would replace anything else (unless `force`) or one of `model_files`, or a disk
    fault.
    """
    _check_names(layout)
    files = tuple(LedgerEntry(piece.name, piece.sha256) for piece in layout.pieces)
    folder, name = delivery.folder, layout.pieces[-1].name
    overwriting.refuse_models((folder / piece.name for piece in layout.pieces), model_files)
    with _locked(folder):
        known = ledger.read_ledger(folder)
        subject = LedgerSubject.of(Request(delivery.key, delivery.constraints), delivery.artifact)
        slot = _slot(consumer, delivery.artifact, subject, files)
        before = known.slots.get(name)
        old = before.files if before else ()
        conflict = known.conflict(name, slot)
        if conflict and not force and any(os.path.lexists(folder / entry.name) for entry in old):
            raise _refusal(folder / name, conflict)
        differing = _differing(layout, folder, cache, known, slot, link=link, force=force)
        if not differing and before is not None and before.files == files and not conflict:
            return
        kept = _entries_without((*old, *(before.before if before else ())), files)
        slot = replace(slot, before=kept)
        # The ledger is written first, so that after a crash every file that was already placed is known to be mxr's.
        ledger.write_ledger(folder, known.with_slot(name, slot))
        with _forgotten_unless_placed(folder, known, [file.name for file in files]):
            _write_pieces(layout, folder, cache, differing, link=link)
        gone = _entries_without(kept, old)
        if gone:
            _remove(folder, [entry for entry in gone if entry.name not in {file.name for file in files}], cache)
            ledger.write_ledger(folder, known.with_slot(name, replace(slot, before=_entries_without(kept, gone))))


def _check_names(layout: Layout) -> None:
    for piece in layout.pieces:
        for part in piece.name.split("/"):
            check_part(part)
        check_name(piece.name)


@contextmanager
def record_under_lock(
    folder: Path,
    rows: Mapping[str, LedgerSlot],
    cache: Cache,
    *,
    link: bool = False,
    force: bool = False,
    model_files: Sequence[Path] = (),
) -> Iterator[tuple[dict[str, FileState], list[str]]]:
    """Lock a folder for the block and record these plain files, one slot by file name, as placed by mxr.

    Yields what is at each name, and the names of those files that the block has to write: one with the right bytes
    stays. Raises `WouldOverwriteError` for a file that may not be replaced, as `write_layout` does.
    """
    overwriting.refuse_models((folder / name for name in rows), model_files)
    refuse_another_model(folder, {} if force else rows, model_files, cache.memo)
    with _locked(folder):
        known, before, differing = ledger.read_ledger(folder), {}, []
        for name, slot in rows.items():
            check_part(name)
            before[name], sha256 = FileState.of(folder / name), slot.files[0].sha256
            found = _sha256_at(folder / name, cache)
            if found != sha256 or not (link or not _shared(folder / name, sha256, cache)):
                differing.append(name)
            if found is None or found == sha256:
                continue
            if force:
                if not known.owns(name, found):
                    overwriting.refuse_forced(folder / name)
            else:
                _refuse_other(folder, name, found, known, slot)
        changed = known
        for name, slot in rows.items():
            changed = changed.with_slot(name, slot)
        if changed != known:
            try:
                ledger.write_ledger(folder, changed)
            except NotAllowedError:
                # Another user's ledger, as in /tmp: the files are not recorded, so they are not replaced later.
                if not _is_foreign(folder / ledger.NAME):
                    raise
        with _forgotten_unless_placed(folder, known, list(rows)):
            yield before, differing


@contextmanager
def _forgotten_unless_placed(folder: Path, known: Ledger, names: Sequence[str]) -> Iterator[None]:
    """Put the ledger back as it was if the block fails before one of these files is there, as on a full disk."""
    try:
        yield
    except MxrError:
        with suppress(OSError, MxrError):
            if not any(os.path.lexists(folder / name) for name in names):
                if known.slots:
                    ledger.write_ledger(folder, known)
                else:
                    (folder / ledger.NAME).unlink()
        raise


def plain_slot(consumer: str, name: str, artifact: Artifact, request: Request) -> LedgerSlot:
    """The ledger slot of one plain file."""
    entry = LedgerEntry(name, artifact.sha256)
    return _slot(consumer, artifact, LedgerSubject.of(request, artifact), (entry,))


def _slot(consumer: str, artifact: Artifact, subject: LedgerSubject, files: tuple[LedgerEntry, ...]) -> LedgerSlot:
    cross = artifact.attributes.tuning == "cross"
    return LedgerSlot(consumer, artifact.id, artifact.digest, subject, files, cross=cross)


def _refuse_other(folder: Path, name: str, found: str, known: Ledger, slot: LedgerSlot) -> None:
    """Raise `WouldOverwriteError` unless mxr placed this file for the same consumer and subject."""
    if not known.owns(name, found):
        _refuse_foreign(folder, [name], [], known)
    if conflict := known.conflict(name, slot):
        raise _refusal(folder / name, conflict)


def _refusal(path: Path, conflict: str) -> WouldOverwriteError:
    return WouldOverwriteError(
        f"{path} was placed for something else ({conflict}). Nothing was written.",
        hint=f"Give {'a folder for each GPU with --per-arch' if conflict.startswith('arch ') else 'another folder'}, "
        f"another --name, or replace it with {stated('force')}.",
    )


def _differing(
    layout: Layout, folder: Path, cache: Cache, known: Ledger, slot: LedgerSlot, *, link: bool, force: bool
) -> dict[str, FileState]:
    """What is at the names of the pieces that are missing or differ.

    Raises `WouldOverwriteError` for files that may not be replaced.
    """
    differing = {}
    for piece in layout.pieces:
        path = folder / piece.name
        before = FileState.of(path)
        found = _sha256_at(path, cache)
        if found == piece.sha256 and (link or piece.data is not None or not _shared(path, piece.sha256, cache)):
            continue
        differing[piece.name] = before
        if found is None or found == piece.sha256:
            continue
        if force:
            # A layout can hold an ONNX file that mxr made.
            if not known.owns(piece.name, found):
                overwriting.refuse_forced(path)
        else:
            _refuse_other(folder, piece.name, found, known, slot)
    if not force:
        _refuse_foreign(folder, [], _rivals(layout, folder, known), known)
    return differing


def _rivals(layout: Layout, folder: Path, known: Ledger) -> list[str]:
    ours = {piece.name for piece in layout.pieces}
    found = {str(path.relative_to(folder)) for pattern in layout.rivals for path in folder.glob(_escaped(pattern))}
    return sorted(name for name in found - ours if not known.knows(name))


def _escaped(pattern: str) -> str:
    """The pattern with every glob character escaped except the star, because the name of a model may contain them."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def _refuse_foreign(folder: Path, foreign: list[str], rivals: list[str], known: Ledger) -> None:
    if foreign:
        changed = " (it changed after mxr placed it)" if known.knows(foreign[0]) else ""
        path = folder / foreign[0]
        raise WouldOverwriteError(
            f"{path} exists{_kind(path)} and is not what mxr placed{changed}. Nothing was written.",
            hint=f"Move it away, give another folder, or replace it with {stated('force')}.",
            context={"files": foreign},
        )
    if rivals:
        raise WouldOverwriteError(
            f"mxr did not place {folder / rivals[0]}, and the consumer would read it beside or instead of mxr's files.",
            hint=f"Move it away, give another folder, or keep it with {stated('force')}.",
            context={"files": rivals},
        )


def _sha256_at(path: Path, cache: Cache) -> str | None:
    """The sha256 of the file at `path`, None if nothing exists there.

    Raises `UsageError` for a folder, or a disk fault.
    """
    with disk.faults(path, "read"):
        try:
            path.lstat()
        except FileNotFoundError:
            return None
        if path.is_dir():
            raise UsageError(
                f"{path} is a folder, but a file must be written there.", hint="Move it away, or give another folder."
            )
        if path.is_symlink() or not path.is_file():
            return "not a file"
        return sha256_memoised(path, cache.memo)


def _is_foreign(path: Path) -> bool:
    """Whether another user owns what is at a path."""
    try:
        return path.lstat().st_uid != os.geteuid()
    except OSError:
        return False


def _kind(path: Path) -> str:
    """What is at a path, for a message, where it is not a plain file."""
    if path.is_symlink():
        return f" (a symbolic link to {path.readlink()})"
    if not path.is_file():
        return " (a device or a pipe)"
    return " (an ONNX model)" if overwriting.is_model(path) else ""


def _shared(path: Path, sha256: str, cache: Cache) -> bool:
    """Whether a file is a hard link to that of the cache."""
    source = cache.access_path(sha256)
    return source.exists() and path.samefile(source)


def _write_pieces(layout: Layout, folder: Path, cache: Cache, differing: dict[str, FileState], *, link: bool) -> None:
    *parts, last = layout.pieces
    final = folder / last.name
    others = [piece.name for piece in parts if piece.name in differing]
    if any(os.path.lexists(folder / name) for name in others) and final.exists():
        # The last piece refers to files that change: a watcher must not see it before all of them are in place.
        differing.get(last.name, FileState.of(final)).check()
        with disk.faults(final, "remove"):
            final.unlink()
        differing[last.name] = FileState(final, None)
    done: dict[Path, tuple[int, int]] = {}
    for whole in layout.whole:
        inside = [piece for piece in parts if piece.name.startswith(f"{whole}/")]
        if not (folder / whole).exists():
            _place_folder(folder / whole, whole, inside, cache, link=link)
            done |= {folder / piece.name: _identity(folder / piece.name) for piece in inside}
    for piece in (*parts, last):
        path = folder / piece.name
        if path in done or (piece.name not in differing and path.exists()):
            continue
        _place_file(piece, path, cache, differing.get(piece.name, FileState(path, None)), link=link)
        done[path] = _identity(path)
    for path, identity in done.items():
        if _identity(path) != identity:
            raise TemporaryError(
                f"Another program replaced {path} while mxr wrote this folder.",
                hint="Run the same command again when no other program writes there.",
            )


def _place_folder(final: Path, whole: str, pieces: Sequence[LayoutFile], cache: Cache, *, link: bool) -> None:
    with disk.faults(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = disk.partial_name(final.parent, final.name)
        partial.mkdir()
    try:
        for piece in pieces:
            path = partial / piece.name.removeprefix(f"{whole}/")
            _place_file(piece, path, cache, FileState(path, None), link=link)
        with disk.faults(final):
            partial.rename(final)
        disk.sync_folder(final.parent)
    except BaseException:
        import shutil

        shutil.rmtree(partial, ignore_errors=True)
        raise


def _place_file(piece: LayoutFile, path: Path, cache: Cache, before: FileState, *, link: bool) -> None:
    if piece.data is not None:
        disk.write_whole(path, piece.data, before=before)
    else:
        cache.place(piece.sha256, path, before, link=link)


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def _remove(folder: Path, entries: Sequence[LedgerEntry], cache: Cache) -> None:
    """Remove the unchanged files of an earlier layout, and the folders that become empty. Follows no link."""
    entries = [entry for entry in entries if not _is_through_link(folder, entry.name)]
    for home in dict.fromkeys((folder / entry.name).parent for entry in entries):
        inside = {Path(entry.name).name: entry.sha256 for entry in entries if (folder / entry.name).parent == home}
        with suppress(OSError, MxrError):
            states = {name: FileState.of(home / name) for name in inside}
            ours = [name for name, sha in inside.items() if _sha256_at(home / name, cache) == sha]
            for name in ours:
                states[name].check()
            if home != folder and {path.name for path in home.iterdir()} == set(ours):
                # A folder in a watched repository must disappear at once, not file by file.
                home = home.rename(disk.partial_name(home.parent, home.name))
            for name in ours:
                (home / name).unlink()
            if home != folder:
                home.rmdir()


def _is_through_link(folder: Path, name: str) -> bool:
    """Whether a folder on the way to a file below `folder` is a symbolic link: what it leads to is not ours."""
    return any((folder / parent).is_symlink() for parent in Path(name).parents if parent != Path())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder itself, so that one fetch at a time writes into it.

    Some file systems have no locks. `_place` therefore also checks at the end that its files were not replaced.
    """
    import fcntl

    with disk.faults(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _entries_without(entries: Sequence[LedgerEntry], others: Sequence[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    return tuple(dict.fromkeys(entry for entry in entries if entry not in others))


def check_part(part: str) -> None:
    """Raise `UsageError` if this part of a path is too long for a file system, or cannot be recorded."""
    try:
        length = len(part.encode())
    except UnicodeEncodeError:
        raise UsageError(
            f"The name {part[:40]} is not UTF-8, so that it cannot be recorded.", hint="Give one with --name NAME."
        ) from None
    if length > MAX_PART_LENGTH:
        raise UsageError(
            f"The name {part[:40]}... is too long for a file: the limit is {MAX_PART_LENGTH} bytes.",
            hint="Give a shorter one with --name NAME.",
        )
