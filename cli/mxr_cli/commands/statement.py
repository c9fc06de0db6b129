"""`mxr statement`: what the registry signed of an artifact, for people and for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mxr.errors import UnknownKeyError, UnsignedError
from mxr.trust.keys import BEGIN, PublicKey
from mxr.trust.statement import ACCEPTED, BUILT
from mxr.util import codec, disk
from mxr_cli.help import ARTIFACTS, HelpfulCommand, completes
from mxr_cli.options import Session, common
from mxr_cli.output import echo, note, print_json

KINDS = {"accepted": ACCEPTED, "built": BUILT}

HINTS = {
    "accepted": "It was published before the registry had a key: `mxr-registry key resign` on its host signs it.",
    "built": "It was pushed, or its worker has no key that is enrolled: docs/trust.md.",
}


@click.group
def statement() -> None:
    """Export what the registry signed of an artifact: DSSE envelopes, which other programs can verify without mxr."""


@statement.command("export", cls=HelpfulCommand)
@click.argument("identity", metavar="ID", shell_complete=completes(ARTIFACTS))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to FILE, not to standard output.",
)
@click.option(
    "--key",
    "key_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the public key that signed it to FILE (PEM). Compare its fingerprint with that of the operator.",
)
@click.option(
    "--kind",
    type=click.Choice(tuple(KINDS)),
    default="accepted",
    show_default=True,
    help="built: what the worker that compiled it signed, if it has a key.",
)
@common
def export(session: Session, identity: str, output: Path | None, key_file: Path | None, kind: str) -> None:
    """Write the latest statement of artifact ID.

    docs/trust.md has ten lines of Python that verify it.

    \b
    Export a statement and the key that signed it:
      mxr statement export 1f40fc92da24 -o statement.json --key registry.pem
    """
    client = session.client()
    found = client.statements(identity)
    envelope = next((each.envelope for each in found.items if each.kind == KINDS[kind]), None)
    if envelope is None:
        raise UnsignedError(f"No statement of the kind {kind} is known of artifact {found.id[:12]}.", hint=HINTS[kind])
    text = codec.canonical(codec.encode(envelope)) + "\n"
    if output is not None:
        before = disk.refuse_other(output, "a statement", lambda data: data.startswith(b'{"payload":'))
        disk.write_whole(output, text.encode(), before=before)
    keyid = envelope.signatures[0].keyid
    if key_file is not None:
        keys = {PublicKey(key.public_key).id: key.public_key for key in client.keys().items}
        if keyid not in keys:
            raise UnknownKeyError(f"The registry does not tell the key {keyid[:12]} that signed it.")
        before = disk.refuse_other(key_file, "a public key", lambda data: data.startswith(BEGIN.encode()))
        disk.write_whole(key_file, keys[keyid].encode(), before=before)
        note(f"mxr: the fingerprint of the key is {keyid}")
    document: dict[str, Any] = {"id": found.id, "key": keyid}
    if session.as_json:
        print_json(document | {"output": str(output) if output else None, "envelope": codec.encode(envelope)})
    elif output is None:
        echo(text.rstrip())
    else:
        echo(str(output))
