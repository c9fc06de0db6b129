"""What a shell completes after options and for arguments: values that are known here, and what the registry has.

The registry is asked once, for a second at most; while it is away, the cache answers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mxr.errors import MxrError
from mxr.facts import BY_NAME, LIST

from .help import ARTIFACTS, JOBS, MODELS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mxr.artifact.records import ListedArtifact
    from mxr.settings import Settings

SECONDS, MOST = 1.0, 500
"""How long the registry is waited for, and the artifacts that are looked at."""

HARMLESS = r"\w[\w.:+@%/=-]*"
"""Letters that mean nothing to a shell."""


def complete(what: str, given: dict[str, Any], begun: str) -> list[CompletionItem]:
    """Return what can follow. `what`: as `mxr_cli.help.completes` takes it; `given`: the parameters of the command."""
    from click.shell_completion import CompletionItem

    if what == "model":
        return [CompletionItem(begun, type="file")]
    # A list, of which the last part is completed.
    sign = "+" if what == "precision" else "," if what in BY_NAME and BY_NAME[what].kind == LIST else None
    before, part = (begun[: begun.rfind(sign) + 1], begun[begun.rfind(sign) + 1 :]) if sign else ("", begun)
    # Names come from other people, and the shell writes them into a command line as they are.
    fits = (value for value in _values(what, given) if value.startswith(part) and re.fullmatch(HARMLESS, value))
    found = [CompletionItem(before + value) for value in fits]
    return [CompletionItem(begun, type="file")] if what == MODELS and not found else found


def _values(what: str, given: dict[str, Any]) -> Iterable[str]:
    from mxr.artifact import target

    if what == "precision":
        return ("fp32", *target.PRECISIONS)
    if what == "consumer":
        from mxr.consumers import CONSUMERS

        return CONSUMERS
    if what == "arch":
        return target.PRODUCTS
    if what in BY_NAME:
        return BY_NAME[what].choices
    with suppress(MxrError):
        settings = _settings(given)
        if what == JOBS:
            return [job.id[:12] for job in _jobs(settings)]
        artifacts = _artifacts(settings)
        names = (each.id[:12] if what == ARTIFACTS else each.model_name or each.key.model[:19] for each in artifacts)
        return list(dict.fromkeys(names))
    return ()


def _settings(given: dict[str, Any]) -> Settings:
    from mxr.settings import load_settings
    from mxr_cli.options import SETTINGS

    return load_settings(os.environ, {name: given.get(name) for name in SETTINGS})


def _artifacts(settings: Settings) -> Iterable[ListedArtifact]:
    from mxr.cache.store import Cache
    from mxr.client.registry import Client
    from mxr.protocol.artifacts import Artifacts

    try:
        client = Client(settings).with_timeout(SECONDS)
        return client.exchange(Artifacts, "GET", f"/artifacts?limit={MOST}", once=True).items
    except MxrError:
        return Cache.of(settings).artifacts()


def _jobs(settings: Settings) -> Iterable[Any]:
    from mxr.client.registry import Client
    from mxr.protocol.jobs import Jobs

    return Client(settings).with_timeout(SECONDS).exchange(Jobs, "GET", f"/jobs?limit={MOST}", once=True).items
