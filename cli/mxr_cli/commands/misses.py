"""`mxr misses`: the requests for which the registry had no program."""

from __future__ import annotations

from itertools import islice

import click

from mxr.artifact.attributes import Request
from mxr.artifact.key import key_words
from mxr.errors import MxrError
from mxr.protocol.artifacts import RecordedMiss, message_document
from mxr.util import codec
from mxr_cli.help import command
from mxr_cli.options import Session, common
from mxr_cli.output import format_time, print_json, print_table
from mxr_cli.rows import SHORT


@command()
@click.option(
    "--limit", type=click.IntRange(1, 5000), metavar="N", default=50, show_default=True, help="List at most N misses."
)
@common
def misses(session: Session, limit: int) -> None:
    """List what was requested and not found, latest first, with how often that was.

    A miss stays in the list when its program is published later; `mxr plan` shows what a matrix still lacks.
    """
    found = list(islice(session.client().misses(), limit))
    if session.as_json:
        print_json({"misses": [message_document(each) for each in found]})
        return
    rows = [(str(each.count), format_time(each.last_at), *_cells(each)) for each in found]
    print_table(rows, ("COUNT", "LAST", "MODEL", "TARGET", "TOOLCHAIN", "INPUTS", "PRECISION"))


def _cells(miss: RecordedMiss) -> tuple[str, ...]:
    """The cells of its request; its digest where this version cannot read it."""
    try:
        key = codec.decode(Request, dict(miss.request), lenient=True).key
    except MxrError:
        return (miss.digest[:12], "", "", "", "")
    return (key.model[:SHORT], *key_words(key))
