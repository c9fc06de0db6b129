"""`mxr trust`: what this user requires of the programs of a registry."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace

import click

from mxr.errors import NotFoundError, UnknownKeyError, UsageError
from mxr.protocol.statements import RegistryKey
from mxr.settings import load_settings
from mxr.trust import rules
from mxr.trust.keys import PublicKey
from mxr.trust.recall_list import PAYLOAD_TYPE, SignedRecalls
from mxr.trust.rules import ANY, ORIGINS, TrustRule
from mxr_cli.help import HelpfulCommand
from mxr_cli.options import Session, cached, common
from mxr_cli.output import confirm, echo, note, print_json


@click.group
def trust() -> None:
    """Require that a registry signed the programs that this user fetches from it."""


@trust.command("add", cls=HelpfulCommand)
@click.argument("url", metavar="[URL]", required=False)
@click.option(
    "--fingerprint",
    metavar="ID",
    help="The fingerprint of the key that signs (`mxr-registry key ls` shows it to the operator).",
)
@click.option(
    "--origin",
    type=click.Choice(ORIGINS),
    default=ANY,
    show_default=True,
    help="built: take only what a worker of the registry compiled. worker: only what it signed, too, with its own key.",
)
@common
def add(session: Session, url: str | None, fingerprint: str | None, origin: str) -> None:
    """Require signatures of the registry at URL (default: the configured one).

    From then on each program of it must be signed with the key of this fingerprint, or with one that it endorses: also
    what comes from the cache, from a lock or from a bundle, with and without a network. At a terminal, the fingerprint
    is asked for; compare it on a way that you trust.

    \b
    mxr trust add https://registry.example.com --fingerprint 3f1c...
    """
    settings = session.settings
    if url is not None:
        settings = load_settings(os.environ, {"registry": url, "plaintext": settings.plaintext})
    client = replace(session, settings=settings, opened=[]).client()
    found = client.keys()
    active = [key for key in found.items if (key.state, key.role) == (rules.ACTIVE, rules.OF_REGISTRY)]
    if fingerprint is None:
        fingerprint = _asked(settings.registry, active)
    own = [key for key in found.items if key.role == rules.OF_REGISTRY]
    key = next((key for key in own if key.id == fingerprint.lower().strip()), None)
    # The id is what the registry says of the key; the fingerprint is of the key itself.
    if key is None or key.state == rules.REVOKED or PublicKey(key.public_key).id != key.id:
        raise UnknownKeyError(
            f"The registry at {settings.registry} has no key with this fingerprint that counts.",
            hint="Compare all 64 digits with the operator; somebody may be in the way. Nothing was changed.",
        )
    rule = TrustRule(found.registry, {key.id: key.known}, origin)
    if (envelope := client.recall_list().envelope) is not None:
        # The key vouches for those before it.
        with suppress(UnknownKeyError):
            listed = SignedRecalls.read(rule.verified(PAYLOAD_TYPE, envelope))
            rule = rule.listed(listed.keys) if listed.registry == rule.registry else rule
    path = rules.write_rules(
        settings.config_dir, rules.read_rules(settings.config_dir) | {_name(settings.registry): rule}
    )
    note(f"mxr: {path} requires it from now on")
    if settings.registry != session.settings.registry:
        note(
            f"mxr: this host is configured with {session.settings.registry}, of which nothing is required by this; the "
            "same registry under another URL is another one here"
        )
    document = {"registry": settings.registry, "id": found.registry, "key": key.id, "origin": origin}
    print_json(document) if session.as_json else echo(key.id)


@trust.command("ls", cls=HelpfulCommand)
@cached
def ls(session: Session) -> None:
    """List what is required of which registry."""
    found = rules.read_rules(session.settings.config_dir)
    if session.as_json:
        rows = [
            {
                "registry": url,
                "id": rule.registry,
                "origin": rule.origin,
                "keys": {id: key.state for id, key in rule.keys.items()},
                "workers": [id for id, key in rule.keys.items() if key.role == rules.OF_WORKER],
            }
            for url, rule in found.items()
        ]
        print_json({"registries": rows})
        return
    for url, rule in found.items():
        echo(f"{url}  (registry {rule.registry}, origin {rule.origin})")
        for id, key in rule.keys.items():
            echo(f"  {id} {key.state}{' (a worker)' if key.role == rules.OF_WORKER else ''}")


@trust.command("rm", cls=HelpfulCommand)
@click.argument("url", metavar="URL")
@cached
def rm(session: Session, url: str) -> None:
    """Require nothing of the registry at URL any more."""
    found = rules.read_rules(session.settings.config_dir)
    if found.pop(_name(url), None) is None:
        raise NotFoundError(f"Nothing is required of {url}.", hint="`mxr trust ls` lists what is.")
    rules.write_rules(session.settings.config_dir, found)
    print_json({"registry": url, "removed": True}) if session.as_json else echo(url)


def _name(url: str) -> str:
    return url.rstrip("/")


def _asked(url: str, active: list[RegistryKey]) -> str:
    """The fingerprint of the only active key, if a person at a terminal says that it is the right one."""
    if not sys.stdin.isatty():
        raise UsageError("Standard input is not a terminal.", hint="Give the fingerprint of the key: --fingerprint ID.")
    if len(active) != 1:
        raise UsageError(
            f"The registry has {len(active)} active keys.", hint="Give the fingerprint of one: --fingerprint ID."
        )
    echo(f"The registry at {url} signs with the key\n  {active[0].id}")
    confirm("Is this the fingerprint that its operator told you?")
    return active[0].id
