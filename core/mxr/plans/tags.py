"""Tags: the lock that a name such as `prod` means now, from the registry or from the cache while it is away."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from mxr.cache.store import Cache
from mxr.errors import MismatchError, NotFoundError, TemporaryError, UnreachableError, UsageError
from mxr.facts import stated
from mxr.protocol.tags import Tag, check_tag
from mxr.request.model import is_identity
from mxr.util.frozen import dataclass
from mxr.workflows.fetch import Connect, told_age

from .lockfile import LockFile, parse_lock

MAX_NAMES = 10
"""Models that an error lists."""


@dataclass(frozen=True, slots=True)
class TaggedLock:
    """What a tag names: one revision, whatever it is moved to meanwhile. `warnings`: to be shown."""

    lock: LockFile
    name: str
    revision: int
    warnings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What it is called."""
        return f"the tag {self.name} (revision {self.revision})"


def find_tag(name: str, cache: Cache, connect: Connect | None) -> TaggedLock:
    """Return what a tag names: what the registry says now, or said last where it is away or not to be asked.

    Raises `NotFoundError` for a tag that there is not, `DamagedError` for one whose lock is none, `UsageError`, and
    `UnreachableError` where the cache does not know it, or for longer than `max_stale`.
    """
    check_tag(name)
    known = cache.tag(name)
    if connect is None:
        if known is None:
            raise UnreachableError(
                f"The cache does not know the tag {name}, and {stated('offline')} forbids to ask the registry.",
                hint=f"Fetch it once without {stated('offline')}.",
            )
        return _read(known.tag)
    client = connect()
    try:
        found, etag = client.tag(name, etag="" if known is None else known.etag)
    except NotFoundError:
        if client.identity:
            cache.note_reply(client)
            cache.store_tag(name, None)
        raise
    except (UnreachableError, TemporaryError) as problem:
        if known is None or known.age > cache.policy.max_stale:
            raise
        warning = f"the registry has not confirmed the tag {name} for {told_age(known.age)}: {problem.message}"
        return _read(known.tag, warning)
    before = cache.partition
    cache.note_reply(client)
    if found is None:
        # Unchanged, if the same registry answered as before.
        again = known is None or cache.partition is not before
        found, etag = client.tag(name) if again else (known.tag if known else None, etag)
    assert found is not None
    older = known is not None and cache.partition is before and found.revision.revision < known.tag.revision.revision
    tagged = _read(found, f"the registry went back to an older revision of the tag {name}" if older else None)
    cache.store_tag(name, found, etag)
    return tagged


def _read(tag: Tag, warning: str | None = None) -> TaggedLock:
    revision = tag.revision
    lock = parse_lock(tag.lock, f"The lock of the tag {revision.name} (revision {revision.revision})")
    return TaggedLock(lock, revision.name, revision.revision, (warning,) if warning else ())


def model_in(tagged: TaggedLock, model: str) -> tuple[str, str | None]:
    """Return the model that a user names, and its name in folders: a file, an identity, or a name in the lock.

    Names are those of the lock: the path, the file name, or this without its suffix. For a file and an identity the
    second value is None. Raises `MismatchError` for a name that is not there, and `UsageError` for one of several.
    """
    if is_identity(model) or Path(model).is_file():
        return model, None
    found: dict[str, str] = {}
    for entry in tagged.lock.entries:
        if model in (entry.model, PurePosixPath(entry.model).name, entry.stem):
            found[entry.request.key.model] = entry.stem
    if len(found) == 1:
        ((identity, stem),) = found.items()
        return identity, stem
    if found:
        paths = sorted({entry.model for entry in tagged.lock.entries if entry.request.key.model in found})
        raise UsageError(
            f"{len(found)} models of {tagged.title} are called {model[:100]!r}.",
            hint=f"Name one by its path in the lock: {', '.join(paths[:MAX_NAMES])}.",
        )
    names = sorted({entry.stem for entry in tagged.lock.entries})
    raise MismatchError(
        f"There is neither a file {model[:100]!r} nor a model of this name in {tagged.title}.",
        hint=f"It has {', '.join(names[:MAX_NAMES])}{' and others' if names[MAX_NAMES:] else ''}.",
    )
