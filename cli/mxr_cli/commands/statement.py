"""`mxr statement`: what the registry signed of an artifact, for people and for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mxr.errors import DamagedError, UnknownKeyError, UnsignedError, UsageError
from mxr.trust.keys import BEGIN, PublicKey
from mxr.trust.statement import ACCEPTED, BUILT
from mxr.util import codec, disk
from mxr_cli.help import ARTIFACTS, HelpfulCommand, completes
from mxr_cli.options import Session, common
from mxr_cli.output import echo, note, print_json

KINDS = {"accepted": ACCEPTED, "built": BUILT}
SIGSTORE = "sigstore"

MAX_FILE = 4 << 20
"""Bytes of a statement that is imported."""

HINTS = {
    SIGSTORE: "Add one: `mxr statement import ID FILE`.",
    "accepted": "It was published before the registry had a key: `mxr-registry key resign` on its host signs it.",
    "built": "It was pushed, or its worker has no key that is enrolled: docs/trust.md.",
}


@click.group
def statement() -> None:
    """Export what was signed of an artifact, which others verify without mxr, and import what they signed."""


def _is_statement(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{" and (b'"payload"' in data or b'"dsseEnvelope"' in data)


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
    type=click.Choice((*KINDS, SIGSTORE)),
    default="accepted",
    show_default=True,
    help="built: of the worker that compiled it, if it has a key. sigstore: the bundle that was imported.",
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
    wanted = (each for each in found.items if (each.bundle if kind == SIGSTORE else each.kind == KINDS[kind]))
    # What others brought is listed last.
    said = next(wanted, None)
    if said is None or (said.imported and kind != SIGSTORE):
        raise UnsignedError(f"No statement of the kind {kind} is known of artifact {found.id[:12]}.", hint=HINTS[kind])
    if key_file is not None and kind == SIGSTORE:
        raise UsageError("A bundle of sigstore has its own key or certificate.", hint="Omit --key.")
    text = codec.canonical(said.document) + "\n"
    if output is not None:
        before = disk.refuse_other(output, "a statement", _is_statement)
        disk.write_whole(output, text.encode(), before=before)
    keyid = said.envelope.signatures[0].keyid
    if key_file is not None:
        keys = {PublicKey(key.public_key).id: key.public_key for key in client.keys().items}
        if keyid not in keys:
            raise UnknownKeyError(f"The registry does not tell the key {keyid[:12]} that signed it.")
        before = disk.refuse_other(key_file, "a public key", lambda data: data.startswith(BEGIN.encode()))
        disk.write_whole(key_file, keys[keyid].encode(), before=before)
        note(f"mxr: the fingerprint of the key is {keyid}")
    document: dict[str, Any] = {"id": found.id, "key": keyid}
    if session.as_json:
        print_json(document | {"output": str(output) if output else None, "envelope": said.document})
    elif output is None:
        echo(text.rstrip())
    else:
        echo(str(output))


@statement.command("import", cls=HelpfulCommand)
@click.argument("identity", metavar="ID", shell_complete=completes(ARTIFACTS))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@common
def import_(session: Session, identity: str, file: Path) -> None:
    """Add to artifact ID what somebody else signed: FILE is a bundle of sigstore, or a DSSE envelope.

    It holds a statement of in-toto, version 1, with each file of the artifact among its subjects, such as what `cosign
    attest-blob` or the attestation of a CI writes. The registry keeps it, `mxr show --statement` shows it, and `mxr
    statement export --kind sigstore` and bundles bring it to others. Neither the registry nor `mxr` verifies it, and
    it proves nothing to hosts that require signatures.

    \b
    cosign attest-blob model.mxr --predicate ci.json --type slsaprovenance1 --new-bundle-format --bundle ci.json
    mxr statement import 1f40fc92da24 ci.json
    """
    with disk.faults(file, "read"), file.open("rb") as stream:
        data = stream.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise DamagedError(f"{file} is too large.", hint=f"A statement has at most {MAX_FILE >> 20} MiB.")
    document = codec.parse(data, str(file))
    if not isinstance(document, dict):
        raise DamagedError(f"{file} is no statement.", hint="Give a bundle of sigstore, or a DSSE envelope, in JSON.")
    found = session.client().add_statement(identity, document)
    print_json({"id": identity, "kind": found.kind}) if session.as_json else echo(found.kind)
