"""A registry that is files: `mxr export --static` wrote them, and a web server or a disk has them.

    https://cdn.example.com/mxr     GET of each file, without a token
    file:///srv/mxr                 the files themselves
    hf://ORG/REPO@REV/mxr           a folder of a repository of Hugging Face, with the token of HF_TOKEN to the hub only

Requests are decided here, over the index of their model, by the rules of a registry. Such a registry takes nothing:
whatever else is asked of it is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from mxr.artifact import candidates as choice_rules
from mxr.artifact import misses
from mxr.artifact.candidates import Candidates
from mxr.artifact.key import MODEL
from mxr.artifact.matching import choose_candidate
from mxr.artifact.misses import MissContext, MissedArtifact
from mxr.artifact.records import LOST, Model
from mxr.configuration.hub import SCHEME as HUB
from mxr.errors import (
    InvalidReplyError,
    MxrError,
    NoSuchArtifactError,
    NoSuchBlobError,
    NoSuchModelError,
    NotARegistryError,
    NotFoundError,
    TemporaryError,
    UnauthenticatedError,
    UnreachableError,
    UsageError,
)
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import static_form
from mxr.protocol.static_form import MAX_INDEX, ROOT, ModelIndex, StaticArtifact, StaticRegistry
from mxr.util import codec
from mxr.util.hashing import CHUNK, sha256_hex

from .pools import CONNECT, MIN_RATE, PLAIN, returned_connection, shut_down_after
from .registry import OK, Client, _retry_after, _skip
from .retry import retry

if TYPE_CHECKING:
    import urllib3

    from mxr.artifact.attributes import Request
    from mxr.artifact.partial import PartialRequest
    from mxr.protocol.recalls import RecallList
    from mxr.protocol.statements import RegistryKeys, Statements

T = TypeVar("T")

FILE = "file://"

READ_SECONDS = 2.0
"""Seconds for which an index is not read again."""

_READ: dict[str, tuple[float, dict[str, ModelIndex]]] = {}
MAX_REDIRECTS = 3
MAX_ROOT = 1 << 20
"""Bytes of `mxr.json`."""

MAX_LISTED = 50
"""Ways to complete a partial request that are listed, as by a registry."""

ID = re.compile("[0-9a-f]{64}")
TAKES_NOTHING = "It is files that `mxr export --static` wrote."


def is_static_url(url: str) -> bool:
    """Whether a URL can only be that of a static registry."""
    return url.startswith((FILE, HUB))


class StaticClient(Client):
    """The static form of a registry at one URL. Can be used from several threads."""

    static = True

    # --- requests ---

    def resolve(self, request: Request, *, name: str = "", hurry: bool = False) -> artifact_protocol.ResolveReply:  # noqa: ARG002
        """Return the artifact for a request, as a registry would choose it. Raises `NoSuchArtifactError`."""
        index = self._index_of(request.key.model)
        rows = {each.artifact.id: each.artifact for each in index.artifacts}
        candidates = [
            artifact.candidate(related)
            for artifact in rows.values()
            if artifact.recall is None and artifact.state != LOST
            for related in [request.related.get(artifact.digest)]
            if related is not None
        ]
        chosen = choose_candidate(request.constraints, candidates, serve=index.serve)
        if chosen is None:
            raise self._missed(misses.miss_error(request, _missed(index), _context(index)))
        artifact = rows[chosen[0].id]
        return artifact_protocol.ResolveReply(artifact, chosen[1], {}, _etag(artifact), index.recalls)

    def candidates(self, partial: PartialRequest, *, name: str = "", hurry: bool = False) -> Candidates:  # noqa: ARG002
        """Return the ways to complete a partial request. Raises `NoSuchArtifactError` if there is none."""
        index = self._index_of(partial.model)
        usable = (each.artifact for each in index.artifacts if each.artifact.recall is None)
        programs = ((each.key, each.candidate()) for each in usable if each.state != LOST)
        found = choice_rules.choices(partial, programs, serve=index.serve)
        if not found:
            raise self._missed(misses.partial_miss_error(partial, _missed(index), _context(index)))
        varies = choice_rules.varying(found) if len(found) > 1 else {}
        return Candidates(tuple(found[:MAX_LISTED]), len(found), varies=varies)

    def confirm(self, identity: str, etag: str) -> tuple[artifact_protocol.Artifact | None, str]:
        """Return one artifact if its entity tag is not `etag` any more, else None, and its entity tag now."""
        row = self._row(identity)
        tag = _etag(row.artifact)
        return None if tag == etag else row.artifact, tag

    def artifact(self, identity: str) -> artifact_protocol.Artifact:
        """Return one artifact with what is said of its compile, by its whole id. Raises `NotFoundError`."""
        row = self._row(identity).artifact
        whole = self._document(artifact_protocol.Artifact, static_form.artifact_name(row.id))
        return whole if whole.id == row.id and whole.sound else row

    def model(self, model: str) -> Model:
        """Return what is said of a model. Raises `NoSuchModelError`."""
        index = self._index_of(model)
        if index.claim is None:
            raise NoSuchModelError(f"The registry at {self.url} does not know the model {model}.")
        return Model(model, index.claim.name, index.claim.inputs, claimed=True)

    def model_identities(self, prefix: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: the files cannot be searched."""
        return ()

    def defaults(self) -> artifact_protocol.NamespaceDefaults:
        """There are none, and nothing is asked for them. Raises `UnreachableError`: a request does without them."""
        raise UnreachableError(f"The registry at {self.url} tells no request defaults.")

    def report_uses(self, some: tuple[artifact_protocol.Use, ...]) -> artifact_protocol.UsesAccepted:  # noqa: ARG002
        """Report nothing: nobody counts."""
        return artifact_protocol.UsesAccepted()

    def is_there(self) -> bool:
        """Whether there is a static registry at the URL. Asks once, and raises nothing."""
        with suppress(MxrError), self._opened(ROOT, self._settings.timeout) as chunks:
            data = b""
            while len(data) <= MAX_ROOT and (chunk := next(chunks, b"")):
                data += chunk
            self._decoded(StaticRegistry, self._parsed(data, ROOT), ROOT)
            return True
        return False

    # --- what was signed ---

    def statements(self, identity: str) -> Statements:
        """Return what was signed of an artifact."""
        from mxr.protocol.statements import Statements

        row = self._row(identity)
        if row.statements is None or not ID.fullmatch(row.statements):
            return Statements(row.artifact.id, ())
        return self._immutable(Statements, "statements", row.statements)

    def keys(self) -> RegistryKeys:
        """Return the keys with which the registry signs, and signed."""
        from mxr.protocol.statements import RegistryKeys

        root = self._root()
        return RegistryKeys(root.registry, root.keys)

    def recall_list(self) -> RecallList:
        """Return what is recalled in the namespace."""
        from mxr.protocol.recalls import RecallList

        root = self._root()
        if root.recall_list is None or not ID.fullmatch(root.recall_list):
            return RecallList(root.namespace, 0, ())
        return self._immutable(RecallList, "recalls", root.recall_list)

    # --- bytes ---

    @contextmanager
    def blob(
        self,
        sha: str,
        size: int | None = None,
        *,
        direct: bool = True,  # noqa: ARG002
        start: int = 0,
    ) -> Iterator[Iterator[bytes]]:
        """Yield an iterator over the chunks of a blob from `start`. Raises `NoSuchBlobError`, `UnreachableError`."""
        seconds = self._settings.timeout + (86_400.0 if size is None else size / MIN_RATE)
        try:
            with self._opened(static_form.blob_name(sha), seconds, start) as chunks:
                yield chunks
        except NotFoundError:
            raise NoSuchBlobError(
                f"The registry at {self.url} lacks blob {sha}.", hint="Write it again: `mxr export --static`."
            ) from None

    # --- documents ---

    def _row(self, identity: str) -> StaticArtifact:
        if not ID.fullmatch(identity):
            raise UsageError(f"{identity[:80]!r} is not the whole id of an artifact.", hint=TAKES_NOTHING)
        for index in self._known.values():
            for row in index.artifacts:
                if row.artifact.id == identity:
                    return row
        try:
            name = static_form.artifact_name(identity)
            key = self._parsed(self._whole(name), name).get("key")
            model = key.get("model") if isinstance(key, dict) else None
        except NotFoundError:
            model = None
        if isinstance(model, str) and MODEL.fullmatch(model):
            for row in self._index_of(model).artifacts:
                if row.artifact.id == identity:
                    return row
        self._root()
        raise NotFoundError(f"The registry at {self.url} has no artifact {identity[:12]}.")

    @property
    def _known(self) -> dict[str, ModelIndex]:
        """The indexes that this process read a moment ago, by model: one command has several clients."""
        moment, found = _READ.get(self.url, (0.0, {}))
        if time.monotonic() - moment > READ_SECONDS:
            found = {}
            _READ[self.url] = (time.monotonic(), found)
        return found

    def _index_of(self, model: str) -> ModelIndex:
        """Return the index of a model; one without artifacts where there is none."""
        if (found := self._known.get(model)) is None:
            try:
                data = self._whole(static_form.index_name(model))
            except NotFoundError:
                root = self._root()
                found = ModelIndex(root.registry, root.namespace, model, "any", root.recalls, root.written_at, None, ())
            else:
                found = self._read_index(model, data)
            self._known[model] = found
        self.identity, self.recalls = found.registry, found.recalls
        return found

    def _read_index(self, model: str, data: bytes) -> ModelIndex:
        """Read an index. An artifact that cannot be read, or is of another model, is passed over."""
        document = self._parsed(data, static_form.index_name(model))
        rows = document.get("artifacts")
        sound = []
        for row in rows if isinstance(rows, list) else ():
            with suppress(MxrError):
                found = codec.decode(StaticArtifact, row, lenient=True)
                if found.artifact.key.model == model and found.artifact.sound and found.artifact.manifest:
                    sound.append(found)
        index = self._decoded(ModelIndex, {**document, "artifacts": []}, static_form.index_name(model))
        if index.model != model:
            raise InvalidReplyError(f"The registry at {self.url} has the index of another model under this name.")
        return replace(index, artifacts=tuple(sound))

    def _root(self) -> StaticRegistry:
        """Return what the folder is, read each time. Raises `NotARegistryError`."""
        try:
            found = self._document(StaticRegistry, ROOT)
        except NotFoundError:
            raise NotARegistryError(
                f"There is no {ROOT} at {self.url}, so it is no static registry.",
                hint="Use the URL of the folder that `mxr export --static` wrote.",
            ) from None
        self.identity, self.recalls = found.registry, found.recalls
        return found

    def _document(self, kind: type[T], name: str) -> T:
        return self._decoded(kind, self._parsed(self._whole(name), name), name)

    def _immutable(self, kind: type[T], folder: str, sha256: str) -> T:
        name = f"{folder}/{sha256}.json"
        data = self._whole(name)
        if sha256_hex(data) != sha256:
            raise InvalidReplyError(f"{name} of the registry at {self.url} does not match the sha256 in its name.")
        return self._decoded(kind, self._parsed(data, name), name)

    def _parsed(self, data: bytes, name: str) -> dict[str, Any]:
        try:
            found = codec.parse(data, name)
        except MxrError as problem:
            raise self._invalid(name, problem) from None
        if not isinstance(found, dict):
            raise self._invalid(name, codec.refuse("", "an object", found))
        return found

    def _decoded(self, kind: type[T], document: Any, name: str) -> T:
        try:
            return codec.decode(kind, document, lenient=True)
        except MxrError as problem:
            raise self._invalid(name, problem) from None

    def _invalid(self, name: str, problem: MxrError) -> InvalidReplyError:
        return InvalidReplyError(
            f"{name} of the registry at {self.url} is invalid: {problem.message}",
            hint="Something else may answer there, such as a page of the web server. Write it again: `mxr export "
            "--static`.",
        )

    def _missed(self, error: NoSuchArtifactError) -> NoSuchArtifactError:
        error.hint = f"The registry at {self.url} takes nothing. {TAKES_NOTHING} Publish the program in the registry "
        error.hint += "that it was exported from, and export it again."
        error.context["static"] = True
        return error

    # --- reading ---

    def _whole(self, name: str) -> bytes:
        """Return a document. Raises `NotFoundError`, `InvalidReplyError`, `UnreachableError`."""

        def attempt() -> bytes:
            parts, size = [], 0
            with self._opened(name, self._settings.timeout) as chunks:
                for chunk in chunks:
                    size += len(chunk)
                    if size > MAX_INDEX:
                        raise InvalidReplyError(f"{name} of the registry at {self.url} exceeds {MAX_INDEX} bytes.")
                    parts.append(chunk)
            return b"".join(parts)

        return retry(self._requests, attempt)

    def _opened(self, name: str, seconds: float, start: int = 0) -> AbstractContextManager[Iterator[bytes]]:
        return self._file(name, start) if self.url.startswith(FILE) else self._page(name, seconds, start)

    @contextmanager
    def _file(self, name: str, start: int) -> Iterator[Iterator[bytes]]:
        path = Path(unquote(urlsplit(self.url).path)) / name
        try:
            with path.open("rb") as file:
                file.seek(start)
                yield iter(lambda: file.read(CHUNK), b"")
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"There is no {name} at {self.url}.") from None
        except OSError as problem:
            raise UnreachableError(f"Cannot read {path}: {problem.strerror}.") from None

    @contextmanager
    def _page(self, name: str, seconds: float, start: int) -> Iterator[Iterator[bytes]]:
        base = self._settings.hub.base(self.url) if self.url.startswith(HUB) else self.url
        reply = self._get(f"{base}/{name}", {"Range": f"bytes={start}-"} if start else {})
        with returned_connection(reply), shut_down_after(seconds, reply.shutdown):
            # A server may send all of it all the same.
            yield _skip(self._chunks(reply), start if reply.status == OK else 0)

    def _get(self, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """GET a file, by a few redirects if need be, and never from https to http.

        No token is sent anywhere, but that of the hub to the hub.
        """
        import urllib3

        from .connection_errors import connection_error

        timeout, hub = self._settings.timeout, self.url.startswith(HUB)
        for _ in range(MAX_REDIRECTS + 1):
            try:
                reply = self._plain_pool.request(
                    "GET",
                    url,
                    headers={**PLAIN, **headers, **(self._settings.hub.headers(url) if hub else {})},
                    retries=False,
                    redirect=False,
                    timeout=urllib3.Timeout(connect=min(CONNECT, timeout), read=timeout),
                    preload_content=False,
                    decode_content=False,
                )
            except (urllib3.exceptions.HTTPError, OSError) as problem:
                raise connection_error(self.url, problem, self._proxy) from problem
            if reply.status in (200, 206):
                return reply
            with returned_connection(reply):
                following = reply.get_redirect_location()
                if not following:
                    raise self._status_error(reply, url)
            before, url = url, urljoin(url, following)
            if not url.startswith(("https://", "http://")) or (before.startswith("https:") and url.startswith("http:")):
                raise NotARegistryError(f"{before} redirects to {url[:200]}, which is not followed.")
        raise NotARegistryError(f"{self.url} redirects more than {MAX_REDIRECTS} times.")

    def _status_error(self, reply: urllib3.BaseHTTPResponse, url: str) -> MxrError:
        status = reply.status
        if status in (404, 410):
            return NotFoundError(f"There is no {url}.")
        if status == 429 or status >= 500:
            problem = TemporaryError(f"The web server at {self.url} answers {status}.")
            problem.retry_after = _retry_after(reply)
            return problem
        if status in (401, 403) and self.url.startswith(HUB):
            return UnauthenticatedError(
                f"The hub does not give {self.url} to this user ({status}).",
                hint="Check the name, or set HF_TOKEN to a token that may read the repository.",
            )
        if status in (401, 403):
            return NotFoundError(f"The web server at {self.url} does not give {url} to everybody ({status}).")
        return NotARegistryError(f"The web server at {self.url} answers {status}.")

    # --- everything else ---

    def _reply(self, *_: Any, **__: Any) -> NoReturn:
        raise self.takes_nothing()

    def with_timeout(self, seconds: float) -> StaticClient:
        """Return a client with a timeout of at most `seconds` without a byte received."""
        return StaticClient(replace(self._settings, timeout=min(self._settings.timeout, seconds)), connections=1)


def _etag(artifact: artifact_protocol.Artifact) -> str:
    return f'"{sha256_hex(codec.canonical(codec.encode(artifact)).encode())[:32]}"'


def _missed(index: ModelIndex) -> Iterable[MissedArtifact]:
    for row in index.artifacts:
        each = row.artifact
        recall = None if each.recall is None else each.recall.word
        yield MissedArtifact(each.key, each.candidate(), each.state == LOST, recall)


def _context(index: ModelIndex) -> MissContext:
    return MissContext(index.namespace, index.serve, index.claim is not None, "export it again after a promotion")
