"""`mxr yank`, `mxr quarantine` and `mxr unyank`: the words for programs that must no longer be used."""

from __future__ import annotations

import click

from mxr.artifact import recall
from mxr.protocol.artifacts import message_document
from mxr_cli.help import ARTIFACTS, command, completes
from mxr_cli.options import Session, common
from mxr_cli.output import echo, print_json

REASON = click.option("--reason", required=True, metavar="TEXT", help="Why, in a sentence that users will read.")


@command()
@click.argument("identity", metavar="ID", shell_complete=completes(ARTIFACTS))
@REASON
@common
def yank(session: Session, identity: str, reason: str) -> None:
    """Let no request choose artifact ID any more. Locks that name it go on, with a warning.

    For a program that is worse than it should be. One that must not run: `mxr quarantine`.

    \b
    Yank a program:
      mxr yank 1f40fc92da24 --reason "half as fast as its predecessor"
    """
    _recall(session, identity, recall.YANKED, reason)


@command()
@click.argument("identity", metavar="ID", shell_complete=completes(ARTIFACTS))
@REASON
@common
def quarantine(session: Session, identity: str, reason: str) -> None:
    """Give artifact ID to nobody any more: no request, no lock, no bundle; caches refuse it when they next ask.

    A cache asks again after `max_age` (an hour, see `mxr config`). ID may also be that of an artifact that was removed,
    or the whole id of one that this registry never had: copies of it may be in caches all the same. Programs that a
    consumer has loaded go on.

    \b
    Quarantine a program:
      mxr quarantine 1f40fc92da24 --reason "wrong results for batches above 4"
    """
    _recall(session, identity, recall.QUARANTINED, reason)


@command()
@click.argument("identity", metavar="ID", shell_complete=completes(ARTIFACTS))
@common
def unyank(session: Session, identity: str) -> None:
    """End what `mxr yank` or `mxr quarantine` said of artifact ID."""
    ended = session.client().end_recall(identity)
    if session.as_json:
        print_json(message_document(ended) | {"ended": True})
    else:
        echo(ended.id)


def _recall(session: Session, identity: str, word: str, reason: str) -> None:
    found = session.client().recall(identity, word, recall.check_reason(reason))
    print_json(message_document(found)) if session.as_json else echo(found.id)
