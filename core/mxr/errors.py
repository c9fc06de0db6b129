"""The tree of errors: one class per thing that can go wrong, known by the same code in every program and on the wire.

    MxrError                 70  internal             a fault of ours
    ├── Usage                 2  usage                the call or the request is not one we can serve
    ├── NotFound              3  not_found            what was named is not here
    │   ├── NoSuchArtifact    3  no_such_artifact     no program for this request: detail.nearest says what comes close
    │   ├── NoSuchModel       3  no_such_model
    │   └── NoSuchBlob        3  no_such_blob
    ├── NotCompiled           4  not_compiled         asked for, not there yet
    ├── CompileFailed         5  compile_failed
    ├── Mismatch              6  mismatch             refused, because it would be wrong: detail.differences says why
    │   └── Conflict          6  conflict             the registry holds something else under this name
    ├── NotAllowed            7  not_allowed
    ├── NoWorker              8  no_worker            nothing live or declared could compile this
    ├── Damaged              65  damaged              a file or a body that is not what it should be
    │   └── DamagedBlob      65  damaged_blob         stored bytes that no longer match their sha256
    ├── Unreachable          69  unreachable          the registry did not answer
    ├── Temporary            75  temporary            try again
    │   └── DiskFull         75  disk_full
    └── Interrupted         130  interrupted

A class is a stable code, an HTTP status, an exit number and a sentence (its docstring is the default message). The
registry turns an error into its wire form, the client rebuilds the same class from the code, the programs print
message and hint and exit with the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

Json = dict[str, Any]


class MxrError(Exception):
    """Something went wrong inside mxr."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    exit: ClassVar[int] = 70
    retry: ClassVar[bool] = False
    usual_hint: ClassVar[str] = "This is a fault of mxr: run again with --debug and report what it prints."

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, detail: Mapping[str, Any] | None = None
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.hint = self.usual_hint if hint is None else hint
        self.detail: Json = dict(detail or {})
        super().__init__(self.message)

    def to_json(self) -> Json:
        """The wire form: `{"error":{"code","message","hint","retry","detail"}}`."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "hint": self.hint,
                "retry": self.retry,
                "detail": self.detail,
            }
        }


class Usage(MxrError):
    """The call is not one that mxr understands."""

    code, status, exit = "usage", 422, 2
    usual_hint = "See --help."


class NotFound(MxrError):
    """What was asked for is not here."""

    code, status, exit = "not_found", 404, 3
    usual_hint = "Check the name; `mxr ls` shows what the registry has."


class NoSuchArtifact(NotFound):
    """The registry has no program for this request."""

    code = "no_such_artifact"
    usual_hint = "Publish one with `mxr push FILE --model MODEL`, or see what there is with `mxr ls`."


class NoSuchModel(NotFound):
    """The registry does not know this model."""

    code = "no_such_model"
    usual_hint = "Give the ONNX file itself instead of its hash."


class NoSuchBlob(NotFound):
    """The registry does not have these bytes."""

    code = "no_such_blob"
    usual_hint = "Push the file again: only what is missing is uploaded."


class NotCompiled(MxrError):
    """The program is not compiled yet."""

    code, status, exit, retry = "not_compiled", 404, 4, True
    usual_hint = "Follow it with `mxr jobs`."


class CompileFailed(MxrError):
    """The compile failed."""

    code, status, exit = "compile_failed", 409, 5
    usual_hint = "`mxr jobs ID` shows the log."


class Mismatch(MxrError):
    """Refused: it does not fit."""

    code, status, exit = "mismatch", 409, 6
    usual_hint = "Each field is listed as needed and as found."


class Conflict(Mismatch):
    """The registry already holds something else under this name."""

    code = "conflict"
    usual_hint = "Nothing was changed."


class NotAllowed(MxrError):
    """This is not allowed."""

    code, status, exit = "not_allowed", 403, 7
    usual_hint = "Give a token with --token or MXR_TOKEN."


class NoWorker(MxrError):
    """No live worker and no declared pool can compile this."""

    code, status, exit = "no_worker", 409, 8
    usual_hint = "`mxr workers` shows what there is."


class Damaged(MxrError):
    """The file is damaged, or not what it should be."""

    code, status, exit = "damaged", 422, 65
    usual_hint = "Get the file again from where it came."


class DamagedBlob(Damaged):
    """Stored bytes no longer match their sha256, and are not handed out."""

    code, status = "damaged_blob", 500
    usual_hint = "Push the file again to repair it; `mxr-registry fsck` lists what else is damaged."


class Unreachable(MxrError):
    """The registry cannot be reached."""

    code, status, exit, retry = "unreachable", 503, 69, True
    usual_hint = "Check --registry (MXR_REGISTRY) and that `mxr-registry serve` runs there."


class Temporary(MxrError):
    """This did not work now, and may work later."""

    code, status, exit, retry = "temporary", 503, 75, True
    usual_hint = "Try again."


class DiskFull(Temporary):
    """The disk is full."""

    code, status = "disk_full", 507
    usual_hint = "Free some space and run the same command again."


class Interrupted(MxrError):
    """Interrupted."""

    code, status, exit = "interrupted", 500, 130
    usual_hint = "Run the same command again: it takes up where it was."


def _family(cls: type[MxrError]) -> dict[str, type[MxrError]]:
    found = {cls.code: cls}
    for child in cls.__subclasses__():
        found |= _family(child)
    return found


BY_CODE: Mapping[str, type[MxrError]] = _family(MxrError)


def from_json(document: object, *, status: int = 500) -> MxrError:
    """The error that a registry's reply tells of.

    A reply that is not in our form (a proxy's page, say) becomes `Temporary` for 502 to 504 and 429, else `MxrError`.
    """
    body = document.get("error") if isinstance(document, dict) else None
    if not isinstance(body, dict):
        if status in (429, 502, 503, 504):
            return Temporary(f"The registry, or a proxy before it, answered with HTTP status {status}.")
        return MxrError(
            f"The registry answered with HTTP status {status} and no words that mxr knows.",
            hint="Check that --registry names an mxr registry and not another service.",
        )
    kind = BY_CODE.get(str(body.get("code")), MxrError)
    detail = body.get("detail")
    return kind(
        str(body.get("message") or "") or None,
        hint=str(body.get("hint") or ""),
        detail=detail if isinstance(detail, dict) else None,
    )
