"""`mxr lock` and `mxr verify`: what was tested is written down, watched over, and found again on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.errors import NoSuchArtifact, Usage
from mxr.lockfiles import pins
from mxr.lockfiles.lockfile import FILE_NAME, LockEntry, LockFile, load, write
from mxr.request.builder import Options
from mxr.util import disk
from mxr.util.frozen import dataclass

from .options import Session, common, matching, request
from .output import day, document, key_cells, note, say, table

if TYPE_CHECKING:
    from mxr.artifact.qualities import Request
    from mxr.request.model import ModelReference


@dataclass(frozen=True, slots=True)
class LockTask:
    """What a call of `mxr lock` is to do with its lock."""

    models: tuple[str, ...]
    file: Path
    add: bool
    check: bool
    register: str | None
    registered: bool
    unregister: str | None

    def __post_init__(self) -> None:
        chosen = [
            name
            for name, on in (
                ("MODEL", self.models or self.add),
                ("--check", self.check),
                ("--registered", self.registered),
                ("--unregister", self.unregister is not None),
            )
            if on
        ]
        if self.register is not None and chosen in ([], ["MODEL"]):
            chosen = ["MODEL"]
        if len(chosen) > 1:
            raise Usage(f"{' and '.join(chosen)} are different things to do.", hint="Call mxr lock once for each.")
        if not chosen or (self.add and not self.models):
            raise Usage("No model is given.", hint="Write mxr lock MODEL..., or mxr lock --check.")


@click.command(short_help="Write down which artifacts were tested, and watch over them.")
@click.argument("models", metavar="[MODEL|MATRIX.yaml]...", nargs=-1)
@click.option(
    "-o",
    "--file",
    type=click.Path(path_type=Path),
    default=FILE_NAME,
    show_default=True,
    metavar="FILE",
    help="The lock.",
)
@click.option("--add", is_flag=True, help="Keep the other entries of the lock.")
@click.option("--check", is_flag=True, help="Say what of the lock is gone (exit 3) or would be another now (exit 6).")
@click.option("--register", metavar="NAME", help="Have the registry keep the lock's artifacts, under this name.")
@click.option("--registered", is_flag=True, help="List the locks that the registry keeps artifacts for.")
@click.option("--unregister", metavar="NAME", help="Have the registry forget this lock.")
@request
@matching
@common
def lock(session: Session, options: Options, batches: tuple[int, ...], **said: Any) -> None:
    """Write down which artifact each request gets now: the file to commit, and to deploy by with fetch --locked.

    Nothing is written unless all of them are there (exit 3 lists those that are not).

    \b
    mxr lock models/*.onnx --arch gfx908 --rocm 7.2 --migraphx 2.15 --batch 1,8
    mxr lock models/bert.onnx --arch gfx942 --rocm 7.2 --migraphx 2.15 --add
    mxr lock matrix.yaml                   all that mxr precompile made
    mxr lock --check                       on a pull request: is it all still there, and still the first choice?
    mxr lock --register prod               what the lock names is neither removed nor swept
    """
    task = LockTask(**said)
    if task.unregister is not None:
        gone = session.client().remove_lock(task.unregister)
        document({"name": gone.name, "unregistered": True}) if session.as_json else say(gone.name)
    elif task.registered:
        _registered(session)
    elif task.check:
        _check(session, task.file)
    else:
        _write(session, task, options, batches)


def _write(session: Session, task: LockTask, options: Options, batches: tuple[int, ...]) -> None:
    """Locks the models, if any are given, and registers the lock, if that is wanted."""
    if task.models:
        base = load(task.file) if task.add and task.file.exists() else LockFile(())
        found = base.merged(_entries(session, task, options, batches))
        disk.write_whole(task.file, write(found).encode())
    else:
        found = load(task.file)
    if task.register is not None:
        session.client().put_lock(task.register, found.ids)
    if session.as_json:
        rows = [entry.to_json() for entry in found.entries]
        document({"lock": str(task.file), "registered": task.register, "entries": rows})
    else:
        kept = f", registered as {task.register}" if task.register is not None else ""
        say(f"{task.file}: {len(found.entries)} entries, {len(found.ids)} artifacts{kept}")


@dataclass(frozen=True, slots=True)
class LockRequest:
    """A request to be locked: `name` is the model as it was said."""

    name: str
    subject: ModelReference
    request: Request
    consumer: str


def _entries(session: Session, task: LockTask, options: Options, batches: tuple[int, ...]) -> list[LockEntry]:
    """An entry for each request. Raises `NoSuchArtifact` that lists all which have none."""
    client = session.client()
    found: list[LockEntry] = []
    missing: list[tuple[LockRequest, NoSuchArtifact]] = []
    for each in _wanted(session, task.models, options, batches):
        try:
            found.append(pins.pin(each.request, each.consumer, each.subject, client, task.file.parent))
        except NoSuchArtifact as problem:
            missing.append((each, problem))
    if missing:
        raise _incomplete(missing, len(found))
    return found


def _wanted(
    session: Session, models: tuple[str, ...], options: Options, batches: tuple[int, ...]
) -> Iterator[LockRequest]:
    """The requests of all models and matrices; a matrix says its own options."""
    from mxr.api import prepare

    cache = session.cache()
    for model in models:
        if model.endswith((".yaml", ".yml")):
            if batches or options != Options(consumer=options.consumer):
                raise Usage(
                    f"{model} says itself what it wants; options of a request go with models.",
                    hint="Leave the options out, or name models.",
                )
            yield from _of_matrix(session, Path(model))
            continue
        for batch in batches or (options.batch,):
            each = replace(options, batch=batch)
            subject, asked = prepare(each, model, cache, session.client, session.host(each))
            yield LockRequest(model, subject, asked.request, asked.consumer.name)


def _of_matrix(session: Session, matrix: Path) -> Iterator[LockRequest]:
    from mxr.consumers import DEFAULT

    from .options import surroundings
    from .precompile import marked, prepared

    around = surroundings()
    with marked(around):
        for each in prepared(session, matrix, around, None, ()):
            yield LockRequest(each.cell.name, each.subject, each.request, each.cell.options.consumer or DEFAULT.name)


def _incomplete(missing: list[tuple[LockRequest, NoSuchArtifact]], found: int) -> NoSuchArtifact:
    keys = [each.request.key for each, _ in missing]
    shown = "; ".join(f"{each.name} ({', '.join(key_cells(each.request.key))})" for each, _ in missing[:5])
    rows = [
        {"model": each.name, "digest": key.digest, "key": key.to_json(), **problem.detail}
        for (each, problem), key in zip(missing, keys, strict=True)
    ]
    more = f"; and {len(missing) - 5} more" if len(missing) > 5 else ""
    return NoSuchArtifact(
        f"{len(missing)} of {len(missing) + found} requests have no program, and nothing was written: {shown}{more}.",
        hint="Have them compiled first: `mxr precompile MATRIX.yaml`, or `mxr fetch MODEL --on-miss wait`.",
        detail={"missing": rows, "nearest": rows[0].get("nearest", []) if len(rows) == 1 else []},
    )


def _check(session: Session, file: Path) -> None:
    client, found = session.client(), load(file)
    findings = list(pins.check(found, file.parent, session.cache(), client))
    _report(session, findings)
    problem = pins.drift(findings)
    if problem is not None:
        raise problem
    if not session.as_json:
        say(f"{file}: {len(findings)} entries, all as locked")


def _report(session: Session, findings: list[pins.LockFinding]) -> None:
    """Each entry that is not as locked in a line; in JSON all of them, where all is well."""
    bad = [each for each in findings if each.state != pins.SAME]
    if session.as_json:
        if not bad:
            document({"ok": True, "entries": [each.to_json() for each in findings]})
        return
    for each in bad:
        now = f", {each.first[:12]}" if each.first else ""
        where = f" ({each.path})" if each.path else ""
        note(f"mxr: {each.entry.model} {each.entry.id[:12]}: {pins.WORDS[each.state]}{now}{where}")


def _registered(session: Session) -> None:
    rows = session.client().locks().locks
    if session.as_json:
        from mxr.protocol.artifacts import document as wire_document

        document({"locks": [wire_document(row) for row in rows]})
        return
    table([(row.name, len(row.artifacts), day(row.updated_at)) for row in rows], ("NAME", "ARTIFACTS", "REGISTERED"))


def _verify_layout(session: Session, folder: Path) -> None:
    from mxr.install import verification

    found = verification.prove(folder)
    for each in found.findings if not session.as_json else ():
        note(f"mxr: {each.path}: {each.kind}. {each.why}")
        for field, placed, now in each.differences:
            note(f"  {field}: placed {placed}, found {now}")
    problem = verification.problem(folder, found)
    if problem is not None:
        raise problem
    if session.as_json:
        document({"ok": True, "folder": str(folder), "files": list(found.files)})
    else:
        say(f"{folder}: {len(found.files)} files, all as mxr placed them")


@click.command(short_help="Check files on disk against a lock, or a folder after its consumer has run.")
@click.argument("file", metavar="[FILE|FOLDER]", type=click.Path(path_type=Path), default=FILE_NAME)
@click.option(
    "--in", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Look in this folder, not in the cache."
)
@common
def verify(session: Session, file: Path, folder: Path | None) -> None:
    """Read the files of the lock FILE (mxr.lock) again, in the cache or in a folder, and compare their sha256.

    Exit 65 where one changed, 3 where one is not there; each is named.

    FILE may be a folder that mxr fetch -o has laid out: after its consumer has run, exit 6 where a file there was
    rewritten, removed, or added by ONNX Runtime's provider, which compiles silently where it finds no file of its name.
    Each is named with the field of the name that differs, and why that may be.

    \b
    mxr verify                                  the programs of mxr.lock, in the cache
    mxr verify mxr.lock --in /models            the same in a folder
    mxr verify /var/cache/mxr-ort/              did ONNX Runtime use what was placed there?
    """
    if file.is_dir():
        if folder is not None:
            raise Usage("--in goes with a lock, not with a folder.", hint="Leave --in out.")
        _verify_layout(session, file)
        return
    findings = list(pins.verify(load(file), session.cache(), folder))
    _report(session, findings)
    problem = pins.damage(findings)
    if problem is not None:
        raise problem
    if not session.as_json:
        say(f"{file}: {len(findings)} entries, all on the disk as locked")
