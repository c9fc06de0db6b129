"""The commands `mxr-registry token`: make, list and revoke tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mxr.artifact.limits import MAX_TOKEN_SECONDS
from mxr.configuration.commands import json_option
from mxr.configuration.schema import SECONDS, Facts, Setting
from mxr.display.streams import write_json, write_line, write_secret
from mxr.errors import NotFoundError, UsageError
from mxr.protocol.access import FETCH, SCOPES, TOKEN_ID, CreateToken, Token
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr_registry.command_options import existing_database, read_settings, settings_options

if TYPE_CHECKING:
    from mxr_registry.config.settings import RegistrySettings
    from mxr_registry.database.session import Database

EXPIRES = Setting("", "expires", float, None, Facts("", unit=SECONDS, least=1, most=MAX_TOKEN_SECONDS))

NEVER = "never"

COMMAND_LINE = "mxr-registry"
"""Who made a token that no administrator made by the API."""


UNUSED = "no use recorded (uses are recorded once a minute)"

SCOPE_LINES = "\n".join(f"{scope:9} {text}" for scope, text in SCOPES.items())
HELP = f"""Make, list and revoke the tokens that requests need. The registry may be running.

\b
{SCOPE_LINES}
"""


@click.group(help=HELP)
def token() -> None:
    """The commands."""


@token.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--scopes",
    default=FETCH,
    show_default=True,
    metavar="SCOPE[,SCOPE...]",
    help=f"What the token allows: {', '.join(SCOPES)}.",
)
@click.option(
    "--expires",
    metavar="TIME",
    default="90d",
    show_default=True,
    help="How long the token is valid, such as 12h or 365d; never: until it is revoked.",
)
@settings_options
@json_option
def create(name: str, scopes: str, expires: str, as_json: bool, **given: Any) -> None:
    """Make a token for NAME, a person or a service, and print it. It is shown only once.

    A name can have several tokens: make the new one and hand it out before you revoke the old one.

    \b
    mxr-registry token create serving --expires never
    mxr-registry token create ci --scopes fetch,ask
    mxr-registry token create gpu-host-7 --scopes work --expires 365d > worker.token
    """
    from mxr_registry.access import tokens
    from mxr_registry.artifacts.namespaces import DEFAULT

    words = tuple(word for word in (each.strip() for each in scopes.split(",")) if word)
    message = CreateToken(name, words, None if expires == NEVER else _seconds(expires))
    with _database(read_settings(**given)).writing() as session:
        made = tokens.create_token(session, DEFAULT, message, COMMAND_LINE)
    if as_json:
        write_secret(codec.canonical(codec.encode(made)))
        return
    write_secret(made.secret)
    write_line(f"Token {_line(made.token, new=True)}. Keep it: it is not shown again.", err=True)


@token.command()
@settings_options
@json_option
def ls(as_json: bool, **given: Any) -> None:
    """List the tokens, newest first, with the last use of each. The registry does not know their secrets."""
    from mxr_registry.access import tokens

    found: list[dict[str, Any]] = []
    after: str | None = None
    db = _database(read_settings(**given))
    while True:
        with db.reading() as session:
            page = tokens.list_tokens(session, after)
        found += page["items"]
        after = page["next"]
        if after is None:
            break
    if as_json:
        write_json({"tokens": found})
    else:
        for each in found:
            write_line(_line(codec.decode(Token, each)))


@token.command()
@click.argument("names", metavar="ID|NAME...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Revoke each valid token of a NAME that has several.")
@click.option(
    "--created-before",
    "before",
    metavar="TIME",
    help="Revoke each valid token that was made before this time, such as 2026-11-24T20:33:41Z. After a restore.",
)
@settings_options
@json_option
def revoke(names: tuple[str, ...], every: bool, before: str | None, as_json: bool, **given: Any) -> None:
    """Revoke tokens by their ID, or the token of a NAME. Registries that are running refuse it within 2 seconds."""
    if bool(names) == (before is not None):
        raise UsageError("Which tokens?", hint="Give an ID or NAME of each, or --created-before.")
    moment = None if before is None else Timestamp.from_json(before, "--created-before")
    from mxr_registry.access import tokens
    from mxr_registry.storage import open_store

    settings = read_settings(**given)
    db, store = _database(settings), open_store(settings.store_url, settings.s3)
    ids = [id for name in names for id in _chosen(db, name, every)]
    if moment is not None:
        with db.reading() as session:
            ids = tokens.created_before(session, moment)
    revoked = [settings.reserve.run(partial(tokens.revoke, db, store, id)) for id in ids]
    if as_json:
        write_json({"revoked": [codec.encode(each) for each in revoked]})
    else:
        for each in revoked:
            write_line(f"Revoked {_line(each)}.")


def _database(settings: RegistrySettings) -> Database:
    from mxr_registry.database import schema

    db = existing_database(settings)
    schema.check_schema(db)
    return db


def _seconds(text: str) -> float:
    try:
        return float(EXPIRES.of_text(text))
    except ValueError as problem:
        raise UsageError(f"--expires: expected {problem}.", hint="Write it as 12h or 90d, or never.") from None


def _chosen(db: Database, name: str, every: bool) -> list[str]:
    """Return the ids that an argument of `revoke` means. Raises `NotFoundError`, `UsageError`."""
    from mxr_registry.access import tokens

    with db.reading() as session:
        if TOKEN_ID.fullmatch(name):
            return [tokens.find_token(session, name).id]
        found = tokens.tokens_of(session, name)
    if not found:
        raise NotFoundError(f"{name[:120]!r} has no valid token.", hint="`mxr-registry token ls` lists the tokens.")
    if len(found) > 1 and not every:
        ids = ", ".join(each.id for each in found)
        raise UsageError(f"{name} has {len(found)} valid tokens: {ids}.", hint="Give the ID of one, or add --all.")
    return [each.id for each in found]


def _line(found: Token, *, new: bool = False) -> str:
    """One token in words; of a `new` one no use."""
    words = [f"{found.id} of {found.name}: {','.join(found.scopes)}"]
    if found.revoked_at is not None:
        words.append(f"revoked {_day(found.revoked_at)}")
    elif found.expires_at is not None:
        words.append(f"{'expired' if found.state == 'expired' else 'expires'} {_day(found.expires_at)}")
    else:
        words.append("never expires")
    if not new:
        by = f" by {found.used_with}" if found.used_with else ""
        words.append(f"last used {_day(found.used_at)}{by}" if found.used_at is not None else UNUSED)
    return ", ".join(words)


def _day(moment: Any) -> str:
    return str(moment.to_json())[:16].replace("T", " ") + " UTC"
