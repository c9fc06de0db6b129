"""What was proven before, so that a further fetch verifies no signature and imports nothing that does.

    <state_dir>/proven/ab/<sha256>            that an artifact was proven under a rule
    <state_dir>/proven/rules/<sha256>.json    what a rule has become that could not be written where it came from

Only this user can write there. The names have the whole rule in them: with another one, with a key that ended, nothing
is proven.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from mxr.artifact.records import Artifact
from mxr.configuration.config_file import UntrustedFileError, read_config
from mxr.errors import MxrError, UntrustedError
from mxr.util import codec
from mxr.util.codec import time_text

from .folder import CacheFolder
from .partition import OWN, list_name

if TYPE_CHECKING:
    from .store import Cache

FILE = "trust.json"
"""See `mxr.trust.rules`."""


def rule_digest(rule: Mapping[str, Any]) -> str:
    """Return the digest of a rule as JSON."""
    return sha256(codec.canonical(rule).encode()).hexdigest()


class Proven:
    """What is required of the registry of one cache, and what is known to fulfil it."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    @cached_property
    def rule(self) -> dict[str, Any] | None:
        """The rule of this registry as JSON; None: nothing is required. Raises `UsageError` for a damaged file."""
        policy = self._cache.policy
        if policy.config is None:
            return None
        try:
            file = read_config(policy.config / FILE)
            found = dict(json.loads(file.text)[policy.url]) if file else None
            return found and self._learned(found)
        except KeyError:
            return None
        except (UntrustedFileError, ValueError, TypeError, RecursionError):
            from mxr.trust.rules import read_rules

            read_rules(policy.config)
            raise

    def _learned(self, rule: dict[str, Any]) -> dict[str, Any]:
        """The rule with what it was followed by, where a host was given a file that its user cannot write."""
        with suppress(MxrError, ValueError, RecursionError):
            kept = self._folder.read(f"rules/{rule_digest(rule)}.json") if self._folder is not None else None
            return dict(json.loads(kept)) if kept else rule
        return rule

    def learn(self, before: Mapping[str, Any], rule: Mapping[str, Any]) -> None:
        """Keep what a rule has become. Does nothing where this user has no folder for it."""
        with suppress(MxrError):
            if self._folder is not None:
                self._folder.write(f"rules/{rule_digest(before)}.json", codec.canonical(rule).encode())

    def latest_list(self) -> dict[str, Any]:
        """Return the latest recall list that is here, told by the registry or brought by a bundle."""
        partition, rule = self._cache.partition, self.rule or {}
        name = list_name(str(rule.get("registry")), self._cache.policy.namespace)
        found = [self._cache.imported.recall_list(name)]
        found += [] if partition is None else [partition.recall_list(OWN)]
        return max(found, key=lambda each: (each["sequence"], each["expires_at"]))

    def refuse_expired(self) -> None:
        """Raise `UntrustedError` if the latest recall list has ended."""
        listed = self.latest_list()
        if listed["sequence"] and 0 < listed["expires_at"] < time.time():
            raise UntrustedError(
                f"The recall list of this registry ended {time_text(listed['expires_at'])}: what it says is too old to "
                "be relied on.",
                hint="Fetch once with the network, or import a newer bundle. Or the clock of this host is wrong.",
            )

    def remembers(self, artifact: Artifact) -> bool:
        """Return whether this artifact was proven under this rule."""
        with suppress(MxrError):
            return self._folder is not None and self._folder.has_trusted_file(self._name(artifact))
        return False

    def remember(self, artifact: Artifact) -> None:
        """Remember that this artifact is proven. Does nothing where this user has no folder for it."""
        with suppress(MxrError):
            if self._folder is not None:
                self._folder.write(self._name(artifact), b"")

    @property
    def digest(self) -> str:
        """The digest of the rule, by which it is known which rule has taken a recall list."""
        return rule_digest(self.rule or {})

    @cached_property
    def _folder(self) -> CacheFolder | None:
        private = self._cache.policy.private
        return None if private is None else CacheFolder(private, "proven")

    def _name(self, artifact: Artifact) -> str:
        facts = {"attributes": artifact.attributes, "key": artifact.key}
        text = codec.canonical([self.rule, self._cache.policy.namespace, artifact.id, codec.encode(facts)])
        name = sha256(text.encode()).hexdigest()
        return f"{name[:2]}/{name}"
