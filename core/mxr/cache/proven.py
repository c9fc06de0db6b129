"""What was proven before, so that a further fetch verifies no signature and imports nothing that does.

    <state_dir>/proven/ab/<sha256>    that an artifact was proven under a rule; only this user can write it

The name has the whole rule in it: with another one, with a key that ended, nothing is proven.
"""

from __future__ import annotations

import json
import time
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
            found = json.loads(file.text)[policy.url] if file else None
            return found if found is None else dict(found)
        except KeyError:
            return None
        except (UntrustedFileError, ValueError, TypeError, RecursionError):
            from mxr.trust.rules import read_rules

            read_rules(policy.config)
            raise

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

    @cached_property
    def _folder(self) -> CacheFolder | None:
        private = self._cache.policy.private
        return None if private is None else CacheFolder(private, "proven")

    def _name(self, artifact: Artifact) -> str:
        facts = {"attributes": artifact.attributes, "key": artifact.key}
        text = codec.canonical([self.rule, self._cache.policy.namespace, artifact.id, codec.encode(facts)])
        name = sha256(text.encode()).hexdigest()
        return f"{name[:2]}/{name}"
