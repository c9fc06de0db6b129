"""`mxr tag`: name a lock in the registry, move the name, and go back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mxr.display.text import counted
from mxr.errors import UsageError
from mxr.plans.lockfile import load_lock, lock_text, parse_lock, save_lock
from mxr.protocol.tags import check_tag
from mxr_cli.help import HelpfulCommand
from mxr_cli.options import Session, common
from mxr_cli.output import confirm, echo, format_time, note, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mxr.protocol.tags import TagRevision


@click.command("tag", cls=HelpfulCommand)
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("lock", metavar="[LOCK]", required=False, type=click.Path(path_type=Path))
@click.option("--rollback", is_flag=True, help="Go back to the revision before, or to that of --revision.")
@click.option("--revision", type=click.IntRange(1), metavar="N", help="The revision, with --rollback or -o.")
@click.option("--rm", "remove", is_flag=True, help="Remove the tag with its revisions; its artifacts stay.")
@click.option("--yes", is_flag=True, help="With --rm: do not ask.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the lock that the tag names to FILE.",
)
@common
def tag(
    session: Session,
    name: str | None,
    lock: Path | None,
    rollback: bool,
    revision: int | None,
    remove: bool,
    yes: bool,
    output: Path | None,
) -> None:
    """Let the tag NAME name the lock file LOCK from now on. Hosts get it with `mxr fetch MODEL:NAME`.

    Without LOCK, list the revisions of the tag; without NAME, list the tags. A tag keeps its last 20 locks, and their
    artifacts are neither removed nor swept meanwhile. It takes the scope promote.

    \b
    mxr tag prod mxr.lock                    move the tag
    mxr fetch resnet50:prod -o model.mxr     what it names for this host, which needs no ONNX file
    mxr fetch --tag prod -o /models/         all that it names for this host
    mxr tag prod                             what it named when, and who moved it
    mxr tag prod --rollback                  go back
    mxr tag prod -o mxr.lock                 look at the lock
    """
    given = [lock is not None, rollback, remove, output is not None]
    if sum(given) > 1:
        raise UsageError("LOCK, --rollback, --rm and -o exclude each other.", hint="Run mxr tag once for each.")
    if name is None and any((*given, revision)):
        raise UsageError("No tag is given.", hint="Run mxr tag NAME ....")
    if revision is not None and not (rollback or output is not None):
        raise UsageError("--revision needs --rollback or -o.", hint="Add one of them.")
    if name is None:
        _list(session, session.client().tags(), named=True)
        return
    check_tag(name)
    client = session.client()
    if lock is not None:
        _show_moved(session, client.move_tag(name, lock=lock_text(load_lock(lock))))
    elif rollback:
        _show_moved(session, client.move_tag(name, revision=revision or _before(client.tags(name))))
    elif remove:
        if not yes:
            confirm(f"Remove the tag {name} with its revisions?")
        removed = client.remove_tag(name)
        print_json({"name": name, "revision": removed.revision, "removed": True}) if session.as_json else echo(name)
    elif output is not None:
        _write(session, name, revision, output)
    else:
        _list(session, client.tags(name), named=False)


def _before(revisions: tuple[TagRevision, ...]) -> int:
    """The revision before the one that a tag names now; what went back to an earlier one counts as that one."""
    now = revisions[0]
    at = now.repeats or now.revision
    earlier = [each for each in revisions if each.revision < at and each.sha256 != now.sha256]
    if not earlier:
        raise UsageError(f"The tag {now.name} has no earlier revision.", hint=f"`mxr tag {now.name}` lists them.")
    kept = {each.revision for each in revisions}
    return earlier[0].repeats if earlier[0].repeats in kept else earlier[0].revision


def _show_moved(session: Session, found: TagRevision) -> None:
    if session.as_json:
        print_json(_row(found))
        return
    back = f", which is revision {found.repeats} again" if found.repeats else ""
    echo(f"{found.name}: revision {found.revision}{back}, {counted(found.artifacts, 'artifact')}")


def _write(session: Session, name: str, revision: int | None, output: Path) -> None:
    found, _ = session.client().tag(name, revision)
    assert found is not None
    save_lock(parse_lock(found.lock, f"The lock of the tag {name}"), output)
    note(f"mxr: revision {found.revision.revision} of the tag {name}")
    print_json(_row(found.revision) | {"path": str(output)}) if session.as_json else echo(str(output))


def _list(session: Session, found: Iterable[TagRevision], *, named: bool) -> None:
    if session.as_json:
        print_json({"tags" if named else "revisions": [_row(each) for each in found]})
        return
    rows = [
        (
            *([each.name] if named else []),
            f"{each.revision}{f' (= {each.repeats})' if each.repeats else ''}",
            each.artifacts,
            format_time(each.created_at),
            each.created_by,
            each.sha256[:12],
        )
        for each in found
    ]
    print_table(rows, (*(["TAG"] if named else []), "REVISION", "ARTIFACTS", "MOVED", "BY", "LOCK"))


def _row(found: TagRevision) -> dict[str, object]:
    from mxr.protocol.artifacts import message_document

    return message_document(found)
