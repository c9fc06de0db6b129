"""The commands `mxr-registry key`: make, list, rotate, retire and revoke the keys with which a registry signs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from mxr.configuration.commands import json_option
from mxr.display.streams import write_json, write_line
from mxr.display.text import printable
from mxr.errors import MxrError, TemporaryError, UsageError
from mxr.protocol.statements import RegistryKey
from mxr.trust.keys import MAX_KEY_FILE
from mxr.trust.rules import ACTIVE, OF_REGISTRY, OF_WORKER, RETIRED, REVOKED
from mxr.util import codec
from mxr_registry.command_options import existing_database, read_settings, settings_options
from mxr_registry.json_text import to_json
from mxr_registry.signer import Signer

if TYPE_CHECKING:
    from mxr.trust.keys import SigningKey
    from mxr_registry.config.settings import RegistrySettings
    from mxr_registry.database.session import Database

BATCH = 100
"""Artifacts that are signed in one transaction."""

NEW = ".new"

MAX_NAME = 100


@click.group()
def key() -> None:
    """Make, list, rotate, retire and revoke the keys with which the registry signs what it accepts, and enroll workers.

    A retired key signs nothing new, and what it signed before stays valid. Of a revoked one nothing is valid until
    `resign`. The registry may be running.
    """


@key.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file of the private key. Default: that of the setting signing.key_file.",
)
@settings_options
@json_option
def create(out: Path | None, as_json: bool, **given: Any) -> None:
    """Make a key and make it known to the registry, endorsed by the one that signs now, if there is one.

    The private key is written to a new file that only this user can read. The registry signs with it once
    signing.key_file names it.
    """
    settings = read_settings(**given)
    path = out or settings.signing_key
    if path is None:
        raise UsageError("Where is the key to be?", hint="Give --out FILE, or set signing.key_file.")
    db = _database(settings)
    known = [each for each in _keys(db) if each["role"] == OF_REGISTRY]
    by = _endorser(db, settings)
    made, _ = _create(db, path, lambda: by)
    if known and by is None:
        write_line("No key endorses it: hosts that require signatures must be told its fingerprint.", err=True)
    _print(made, as_json, f"Its private key is in {path}.")


@key.command()
@click.argument("file", metavar="FILE", type=click.File("r", encoding="utf-8"))
@click.option("--name", metavar="NAME", required=True, help="What to call the worker, or the workers, that have it.")
@settings_options
@json_option
def enroll(file: TextIO, name: str, as_json: bool, **given: Any) -> None:
    """Make the public key in FILE known as that of a worker (`mxr-worker key` prints it; - reads standard input).

    The worker signs with it what it builds. It signs nothing else: no host takes it for a key of the registry. The key
    that signs now endorses it. `retire` and `revoke` end it.
    """
    from mxr.trust.keys import PublicKey
    from mxr_registry.access import signing_keys
    from mxr_registry.artifacts import recalls

    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise UsageError(f"--name has 1 to {MAX_NAME} printable characters.")
    public = PublicKey(file.read(MAX_KEY_FILE))
    settings = read_settings(**given)
    db = _database(settings)
    by = _endorser(db, settings)
    if by is None:
        raise UsageError(
            "This command cannot read the key with which the registry signs, so nothing endorses the worker's.",
            hint="Run it where signing.key_file (MXR_SIGNING_KEY_FILE) names that key; `mxr-registry key ls` lists it.",
        )
    with db.writing() as session:
        found = _plain(signing_keys.enroll(session, public, by, OF_WORKER, name))
        recalls.renumber(session)
    _print(found, as_json)


@key.command()
@settings_options
@json_option
def ls(as_json: bool, **given: Any) -> None:
    """List the keys, the latest first."""
    found = _keys(_database(read_settings(**given)))
    if as_json:
        write_json({"keys": found})
    for each in found if not as_json else ():
        write_line(_line(each))


@key.command()
@settings_options
@json_option
def rotate(as_json: bool, **given: Any) -> None:
    """Replace the key that signs by a new one, which it endorses, and retire it.

    Running registries sign with the new key at once. Where the file of the key cannot be replaced, such as a secret of
    Kubernetes, use `key create --out`, replace the secret, and `key retire` the old key.
    """
    settings = read_settings(**given)
    db, path = _database(settings), settings.signing_key
    Signer(path).key()
    assert path is not None
    new, before = path.with_name(path.name + NEW), []

    def endorser() -> SigningKey | None:
        # Now that the new file keeps others from a rotation: the key may be another one than a moment ago.
        before.append(Signer(path).key())
        return _endorser(db, settings)

    made, by = _create(db, new, endorser)
    (old,) = before
    try:
        new.replace(path)
    except OSError as problem:
        raise UsageError(
            f"Cannot replace {path}: {problem.strerror}. The new key is in {new}.",
            hint=f"Put it where the registry reads its key, then `mxr-registry key retire {old.public.id[:12]}`.",
        ) from None
    if by is None:
        _print(made, as_json, f"{old.public.id[:12]}, which ended, does not endorse it: tell hosts its fingerprint.")
    else:
        _end(db, old.public.id, RETIRED)
        _print(made, as_json, f"{old.public.id[:12]} is retired.")


@key.command()
@click.argument("id", metavar="ID")
@settings_options
@json_option
def retire(id: str, as_json: bool, **given: Any) -> None:
    """Let key ID sign nothing more. What it signed before stays valid."""
    _print(_end(_database(read_settings(**given)), id, RETIRED), as_json)


@key.command()
@click.argument("id", metavar="ID")
@settings_options
@json_option
def revoke(id: str, as_json: bool, **given: Any) -> None:
    """Let nothing count that key ID signed: somebody else may have it.

    Make a new key first or afterwards, then `key resign`: until then, hosts that require signatures get nothing that
    only this key signed.
    """
    _print(_end(_database(read_settings(**given)), id, REVOKED), as_json)


@key.command()
@settings_options
@json_option
def resign(as_json: bool, **given: Any) -> None:
    """Sign each artifact again that no key signed that counts: after `key revoke`, and after an upgrade.

    It says what the registry knows now: check first what was published while the key was in other hands
    (`mxr history`). An interrupted run goes on where it was.
    """
    from mxr_registry.artifacts import statements
    from mxr_registry.database import trail
    from mxr_registry.database.session import Database

    settings = read_settings(**given)
    _database(settings)
    signer = Signer(settings.signing_key)
    db, count = Database(settings.database_url, settings.connections, signer=signer), 0
    while True:
        with db.writing() as session:
            found = statements.unsigned(session, BATCH)
            for namespace, artifact in found:
                statements.accept(session, namespace, artifact)
            if not found:
                trail.record(session, "key.resign", signer.key().public.id, {"artifacts": count})
                break
        count += len(found)
    if as_json:
        write_json({"signed": count})
    else:
        write_line(f"Signed {count} artifacts.")


def _database(settings: RegistrySettings) -> Database:
    from mxr_registry.database import schema

    db = existing_database(settings)
    schema.check_schema(db)
    return db


def _keys(db: Database) -> list[dict[str, Any]]:
    from mxr_registry.access import signing_keys

    with db.reading() as session:
        return _plain(signing_keys.list_keys(session)["items"])  # type: ignore[no-any-return]


def _endorser(db: Database, settings: RegistrySettings) -> SigningKey | None:
    """The key that signs now; None for the first one, for one that ended, and where this command cannot read it."""
    states = {each["id"]: each["state"] for each in _keys(db) if each["role"] == OF_REGISTRY}
    try:
        found = Signer(settings.signing_key).key()
    except TemporaryError:
        return None
    return found if states and states.get(found.public.id, ACTIVE) == ACTIVE else None


def _create(
    db: Database, path: Path, endorser: Callable[[], SigningKey | None]
) -> tuple[dict[str, Any], SigningKey | None]:
    """Make a key in a new file, which goes again where the database does not take it. Return it, and who endorsed it.

    `endorser` is asked once the file is there.
    """
    from mxr.trust.keys import SigningKey
    from mxr_registry.access import signing_keys
    from mxr_registry.artifacts import recalls

    made = SigningKey.create(path)
    try:
        by = endorser()
        with db.writing() as session:
            found = signing_keys.enroll(session, made.public, by)
            # Hosts hear of it by the next recall list, while the key that endorses it still counts.
            recalls.renumber(session)
            return _plain(found), by
    except MxrError:
        with suppress(OSError):
            path.unlink()
        raise


def _end(db: Database, id: str, state: str) -> dict[str, Any]:
    from mxr_registry.access import signing_keys
    from mxr_registry.artifacts import recalls

    with db.writing() as session:
        found = signing_keys.end(session, id, state)
        if state == REVOKED:
            recalls.renumber(session)
        return _plain(found)  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    return codec.parse(to_json(value), "keys")


def _print(found: dict[str, Any], as_json: bool, more: str = "") -> None:
    if as_json:
        write_json(found)
    else:
        write_line(_line(found))
        if more:
            write_line(more, err=True)


def _line(document: dict[str, Any]) -> str:
    found = codec.decode(RegistryKey, document)
    day = str((found.ended_at or found.created_at).to_json())[:16].replace("T", " ")
    by = f", endorsed by {found.endorsement.signatures[0].keyid[:12]}" if found.endorsement else ""
    of = "" if found.role == OF_REGISTRY else f", of the worker {found.name}"
    return printable(f"{found.id} {found.state} since {day} UTC{of}{by}")
