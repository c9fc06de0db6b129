"""The message in which the registry sends an error: problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from mxr.errors import BY_CODE, MAX_REQUEST_ID, TYPE
from mxr.util.doc import Doc


@dataclass(frozen=True, slots=True)
class Problem:
    """An error (RFC 9457).

    `MxrError.to_json` writes it.
    """

    type: Annotated[str, Doc("The code as a URI.", pattern=f"^{TYPE}[a-z_]+$")]
    title: Annotated[str, Doc("The code as a text.")]
    status: Annotated[int, Doc("The HTTP status.", minimum=400, maximum=599)]
    detail: Annotated[str, Doc("What is wrong, for people.")]
    code: Annotated[str, Doc("Which error it is. A program should decide by it.", enum=tuple(sorted(BY_CODE)))]
    hint: Annotated[str, Doc("What to do, for people.")]
    retry: Annotated[bool, Doc("The same request can succeed later.")]
    context: Annotated[Mapping[str, Any], Doc("Facts for programs, which depend on the code.")]
    request_id: Annotated[str, Doc("As in `X-Request-ID`.", maxLength=MAX_REQUEST_ID)]
