"""The error tree: one class for each kind of failure, with the same code in every program and in the HTTP API.

    MxrError                    70  internal          a bug in mxr
    ├── UsageError               2  usage             the call or the request is invalid
    │   ├── MalformedError       2  malformed         a document is not JSON
    │   └── TooLargeError        2  too_large         a request, or a document in it, exceeds a limit
    ├── NotFoundError            3  not_found         the named object does not exist
    │   ├── NoSuchArtifactError  3  no_such_artifact  no program matches; context.nearest lists the closest ones
    │   ├── NoSuchModelError     3  no_such_model     the model is not registered
    │   └── NoSuchBlobError      3  no_such_blob      bytes are missing; context.missing lists their sha256
    ├── NotCompiledError         4  not_compiled      the compile is queued or running
    ├── CompileFailedError       5  compile_failed    the compile failed
    ├── MismatchError            6  mismatch          refused as incompatible; context.differences lists the fields
    │   ├── ConflictError        6  conflict          the registry holds different data under this name
    │   ├── RecalledError        6  recalled          the program was yanked or quarantined; context.reason says why
    │   └── UntrustedError       6  untrusted         a signed record is not what this host requires
    │       ├── UnsignedError    6  unsigned          there is no signed record
    │       ├── BadSignatureError 6 bad_signature     the signature is not one of this document
    │       ├── UnknownKeyError  6  unknown_key       no key signed it that counts here
    │       ├── RevokedKeyError  6  revoked_key       its key was revoked, or retired before
    │       └── OtherRecordError 6  other_record      the record says something of another program
    ├── NotAllowedError          7  not_allowed       permission denied
    │   ├── UnauthenticatedError 7  unauthenticated   the request has no valid token
    │   └── WouldOverwriteError  7  would_overwrite   a file is in the way, and it may not be replaced
    ├── NoWorkerError            8  no_worker         no live worker and no declared pool can compile the program
    ├── DamagedError            65  damaged           a file or a message body is corrupt
    │   └── DamagedBlobError    65  damaged_blob      stored bytes do not match their sha256
    ├── UnreachableError        69  unreachable       the registry does not answer
    │   ├── NotARegistryError   69  not_a_registry    something else answers under the URL of the registry
    │   └── OtherRegistryError  69  other_registry    another registry answers under this URL than before
    ├── InvalidReplyError       69  invalid_reply     the registry's reply is none of its API
    ├── TemporaryError          75  temporary         temporary failure
    │   └── DiskFullError       75  disk_full         no space left on the disk
    └── InterruptionError      130  interrupted       stopped by the user or by a signal

Each class has a stable code, an HTTP status, an exit code, a default message (the first line of its docstring) and a
default hint. The registry sends an error as JSON, the client rebuilds the same class from the code, and the programs
print the message and the hint and exit with the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mxr.display.text import printable, redact

Json = dict[str, Any]

MEDIA_TYPE = "application/problem+json"
"""The content type of an error in a reply of a registry. Source: RFC 9457, section 3."""

MAX_REQUEST_ID = 128

TYPE = "urn:mxr:error:"
"""What `type` in the JSON form begins with; the code follows."""


class MxrError(Exception):
    """Internal error in mxr.

    `code`, `status`, `exit`: the code in the JSON form, the HTTP status and the exit code. `retry`: whether the same
    call can succeed later. `retry_after`: seconds that the registry asks the client to wait (HTTP `Retry-After`).
    `usual_hint` speaks of commands, `api_hint` of requests. `request_id`: of the request that a registry answered with
    this error.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    exit: ClassVar[int] = 70
    retry: ClassVar[bool] = False
    request_id: str = ""
    usual_hint: ClassVar[str] = "This is a bug in mxr. Run the command again with --debug and report the output."
    api_hint: ClassVar[str] = "Report it with the lines of the registry's log that name this request."
    retry_after: float | None = None

    def __init_subclass__(cls) -> None:
        """Let `api_hint` be `usual_hint`, unless the class has one of its own."""
        if "api_hint" not in cls.__dict__:
            cls.api_hint = cls.usual_hint

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, context: Mapping[str, Any] | None = None
    ) -> None:
        self.message = redact(message or f"{_title(type(self))}.")
        self.hint = redact(self.usual_hint if hint is None else hint)
        self.context: Json = dict(context or {})
        super().__init__(self.message)

    def __str__(self) -> str:
        """Return the message as a log or a traceback may show it: it can quote text of other people."""
        return printable(self.message)

    @property
    def traced(self) -> str:
        """The message for a log, with the id of the request that the registry's log names, if it answered one."""
        return f"{self} (request {self.request_id})" if self.request_id else str(self)

    def to_json(self, status: int | None = None) -> Json:
        """Return the JSON form, which is that of problem details. Source: RFC 9457.

        `status`: the HTTP status of the reply of a registry, whose hints are for whoever speaks HTTP.
        """
        detail, hint = self.message, self.hint
        if status:
            hint = self.api_hint if hint == self.usual_hint else hint
        found = {
            "type": TYPE + self.code,
            "title": _title(type(self)),
            "status": status or self.status,
            "detail": detail,
            "code": self.code,
            "hint": hint,
            "retry": self.retry,
            "context": self.context,
        }
        return found | ({"request_id": self.request_id} if self.request_id else {})


def _title(kind: type[MxrError]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0].rstrip(".")


class UsageError(MxrError):
    """Invalid command or request."""

    code, status, exit = "usage", 422, 2
    usual_hint = "Run the command with --help to see its arguments."
    api_hint = "Correct the request; `/openapi.json` describes the API."


class MalformedError(UsageError):
    """The document cannot be parsed."""

    code, status = "malformed", 400
    usual_hint = "Write one JSON document in UTF-8."


class TooLargeError(UsageError):
    """The request is too large."""

    code, status = "too_large", 413
    usual_hint = "docs/operate.md lists the limits."
    api_hint = "Send a smaller request; docs/api.md lists the limits."


class NotFoundError(MxrError):
    """The requested object does not exist."""

    code, status, exit = "not_found", 404, 3
    usual_hint = "Check the name. `mxr ls` lists what the registry has."
    api_hint = "Check the name in the path."


class NoSuchArtifactError(NotFoundError):
    """The registry has no program for this request."""

    code = "no_such_artifact"
    usual_hint = "Publish one with `mxr push FILE --model MODEL`. `mxr ls` lists the programs in the registry."
    api_hint = "Request a compile (`POST /v1/jobs`), or publish a program (`POST /v1/artifacts`)."


class NoSuchModelError(NotFoundError):
    """The registry does not know this model."""

    code = "no_such_model"
    usual_hint = "Pass the ONNX file instead of its hash."
    api_hint = "Upload its bytes (`PUT /v1/blobs/{sha256}`), and register it (`POST /v1/models`)."


class NoSuchBlobError(NotFoundError):
    """The registry does not have these bytes."""

    code = "no_such_blob"
    usual_hint = "Push the file again. Only missing bytes are uploaded."
    api_hint = "Upload the missing blobs (`PUT /v1/blobs/{sha256}`), and send the request again."


class NotCompiledError(MxrError):
    """The program is not compiled yet."""

    code, status, exit, retry = "not_compiled", 404, 4, True
    usual_hint = "Check the progress with `mxr jobs`."
    api_hint = "Follow the job (`GET /v1/jobs/{id}`)."


class CompileFailedError(MxrError):
    """The compile failed."""

    code, status, exit = "compile_failed", 409, 5
    usual_hint = "Read the log with `mxr jobs ID`."
    api_hint = "Read the log of the job (`GET /v1/jobs/{id}/log`)."


class MismatchError(MxrError):
    """The program does not match the request or this host."""

    code, status, exit = "mismatch", 409, 6
    usual_hint = "Compare the required and the actual value of each field, and correct the request or the program."


class ConflictError(MismatchError):
    """The registry holds different data under this name."""

    code = "conflict"
    usual_hint = "The registry was not changed. Use another name, or remove the existing entry first."


class RecalledError(MismatchError):
    """The program was recalled and must no longer be used."""

    code, status = "recalled", 410
    usual_hint = (
        "Use another program: fetch without a lock, or write a new lock with `mxr lock`. If it is good after all, "
        "`mxr unyank ID` ends it."
    )
    api_hint = "Request another program. `DELETE /v1/artifacts/{id}/recall` ends it."


class UntrustedError(MismatchError):
    """A signed record is not what this host requires."""

    code = "untrusted"
    usual_hint = "docs/trust.md says what each of these means. `mxr trust ls` shows what this host requires."


class UnsignedError(UntrustedError):
    """There is no signed record of this program."""

    code = "unsigned"


class BadSignatureError(UntrustedError):
    """The signature is not one of this document."""

    code = "bad_signature"


class UnknownKeyError(UntrustedError):
    """No key signed it that counts here."""

    code = "unknown_key"


class RevokedKeyError(UntrustedError):
    """The key that signed it does not count any more."""

    code = "revoked_key"


class OtherRecordError(UntrustedError):
    """The signed record says something of another program."""

    code = "other_record"


class NotAllowedError(MxrError):
    """Permission denied."""

    code, status, exit = "not_allowed", 403, 7
    usual_hint = "Ask the registry's operator for access."


class UnauthenticatedError(NotAllowedError):
    """The request has no valid token."""

    code, status = "unauthenticated", 401
    usual_hint = "Run `mxr login`, or set MXR_TOKEN_FILE or MXR_TOKEN. Tokens are issued by the registry's operator."
    api_hint = (
        "Send `Authorization: Bearer TOKEN`. The registry's operator issues tokens (`mxr-registry token create`)."
    )


class WouldOverwriteError(NotAllowedError):
    """A file is in the way, and it may not be replaced."""

    code = "would_overwrite"
    usual_hint = "Move it away, or give another path."


class NoWorkerError(MxrError):
    """No live worker and no declared pool can compile this program."""

    code, status, exit = "no_worker", 409, 8
    usual_hint = "`mxr workers` lists the workers and the declared pools. Start a worker for this target."
    api_hint = "Start a worker for this target. `GET /v1/workers` and `GET /v1/pools` list what there is."


class DamagedError(MxrError):
    """The file is corrupt or has the wrong format."""

    code, status, exit = "damaged", 422, 65
    usual_hint = "Copy or download the file again from its source."
    api_hint = "Send the file again from its source."


class DamagedBlobError(DamagedError):
    """Stored bytes do not match their sha256 and are not served."""

    code, status = "damaged_blob", 500
    usual_hint = "Push the file again to repair it. `mxr-registry fsck` lists all damaged data."
    api_hint = "Send the bytes again to repair them. `mxr-registry fsck` lists all damaged data."


class UnreachableError(MxrError):
    """The registry cannot be reached."""

    code, status, exit, retry = "unreachable", 503, 69, True
    usual_hint = "Check that `mxr-registry serve` is running there. `mxr config` shows where the URL comes from."


class NotARegistryError(UnreachableError):
    """Something else than an mxr registry answers under this URL."""

    code, status, retry = "not_a_registry", 502, False
    usual_hint = "Use the URL of an mxr registry, without a path. `mxr config` shows where this one comes from."


class OtherRegistryError(UnreachableError):
    """Another registry answers under this URL than before."""

    code, status, retry = "other_registry", 502, False
    usual_hint = (
        "Its data may not be mounted: ask who runs it. Where the new one is meant, `mxr login` accepts it, or set "
        "MXR_REGISTRY_ID to its id."
    )


class InvalidReplyError(MxrError):
    """The reply of the registry is invalid."""

    # Not an `UnreachableError`: to repeat the request, or to do without the registry, would hide it.
    code, status, exit = "invalid_reply", 502, 69
    usual_hint = "Use the URL of an mxr registry (`mxr config` shows it), and run one version of mxr on both sides."


class TemporaryError(MxrError):
    """Temporary failure."""

    code, status, exit, retry = "temporary", 503, 75, True
    usual_hint = "Try again later."


class TooManyRequestsError(TemporaryError):
    """Too many requests."""

    code, status = "too_many_requests", 429
    usual_hint = "Send fewer requests at the same time, or try again later."


class DiskFullError(TemporaryError):
    """No space left on the disk."""

    code, status = "disk_full", 507
    usual_hint = "Free some space and run the same command again."
    api_hint = "Free some space on the registry's disk, and send the request again."


class InterruptionError(MxrError):
    """Interrupted."""

    code, status, exit = "interrupted", 500, 130
    usual_hint = "Run the same command again: uploads, and downloads into the cache, go on where they stopped."
    api_hint = "Send the request again."


def _with_subclasses(cls: type[MxrError]) -> dict[str, type[MxrError]]:
    found = {cls.code: cls}
    for child in cls.__subclasses__():
        found |= _with_subclasses(child)
    return found


BY_CODE: Mapping[str, type[MxrError]] = _with_subclasses(MxrError)


def has_error(document: object) -> bool:
    """Return whether a JSON document is an error in mxr's form."""
    return isinstance(document, dict) and str(document.get("type")).startswith(TYPE)


def from_json(document: object, *, status: int = 500) -> MxrError:
    """Return the error that the reply of a registry describes.

    `status` is the HTTP status of the reply. A reply without an error document in mxr's form, such as an HTML page of a
    proxy, becomes `TemporaryError` for the statuses 429, 502, 503 and 504, and `MxrError` for all others.
    """
    if not has_error(document):
        if status in (429, 502, 503, 504):
            return TemporaryError(f"The registry, or a proxy in front of it, answered with HTTP status {status}.")
        return MxrError(
            f"The registry answered with HTTP status {status} and a body that is not an mxr error.",
            hint="Use the URL of an mxr registry. `mxr config` shows where this one comes from.",
        )
    assert isinstance(document, dict)
    kind = BY_CODE.get(str(document.get("code")), MxrError)
    context = document.get("context")
    hint = str(document.get("hint") or "")
    found = kind(
        str(document.get("detail") or "") or None,
        hint=kind.usual_hint if hint == kind.api_hint else hint,
        context=context if isinstance(context, dict) else None,
    )
    found.request_id = str(document.get("request_id") or "")[:MAX_REQUEST_ID]
    return found


def missing_package(program: str, problem: Exception, extra: str = "") -> MxrError | None:
    """Return the error that says what to install, or None where no package of other people is missing.

    `extra`: the optional dependencies in pyproject.toml that the program needs.
    """
    name = (problem.name or "").partition(".")[0] if isinstance(problem, ModuleNotFoundError) else ""
    if not name or name == "mxr" or name.startswith("mxr_"):
        return None
    what = f"'.[{extra}]'" if extra else "."
    wheel = f"'FILE.whl[{extra}]'" if extra else "FILE.whl"
    return UsageError(
        f"{program} needs the Python package {name}, which is not installed.",
        hint=f"Install it with its packages: `pip install {what}` in the checkout, or `pip install {wheel}`.",
    )
