"""Leaves secrets out of text: user, password and signature of URLs, tokens in headers, parameters named so."""

from __future__ import annotations

import re

USERINFO = r"(?<=://)(?:[^\s/?#'\"<>]{0,512}|[^\s/@:'\"<>]{0,512}:[^\s'\"<>]{0,512})@"
"""The second form is a password with a delimiter that is not percent-encoded."""

PARAMETER = r"(?i)(\b(?:X-Amz-(?:Signature|Credential|Security-Token)|password|passwd|secret|token)=)[^&\s'\"]+"
AUTHORIZATION = r"(?i)\b(bearer |authorization['\"]?[:=] ?['\"]?\w{1,20} )[\w.~+/=-]{8,}"
TOKEN = r"\bmxr_[A-Za-z0-9]+_[A-Za-z0-9_-]{32,}"
HIDDEN = "***"


def redact(text: str) -> str:
    """Return `text` without secrets that can be recognized by their form."""
    if "@" in text and "://" in text:
        text = re.sub(USERINFO, f"{HIDDEN}@", text)
    if "=" in text:
        text = re.sub(PARAMETER, rf"\1{HIDDEN}", text)
    if "mxr_" in text:
        text = re.sub(TOKEN, f"mxr_{HIDDEN}", text)
    lower = text.lower()
    if "bearer " in lower or "authorization" in lower:
        text = re.sub(AUTHORIZATION, rf"\1{HIDDEN}", text)
    return text


def redact_url(url: str) -> str:
    """Return a URL without the parts that may be secret: user, password and query."""
    scheme, _, rest = url.partition("://")
    # Not parsed as a URL: a password that is not percent-encoded may contain any delimiter.
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
