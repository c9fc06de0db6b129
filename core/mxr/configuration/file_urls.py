"""The URLs of registries that are files, other than https: a folder, a bucket, a repository of Hugging Face.

    file:///FOLDER
    s3://BUCKET/PREFIX
    hf://ORG/REPO[@REV]/PATH

Source: the documentation of huggingface_hub, "Environment variables" (HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME),
and "Download files" (`/resolve/REVISION/PATH`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from mxr.util.frozen import dataclass

FILE = "file://"
BUCKET = "s3://"
HUB = "hf://"
ENDPOINT = "https://huggingface.co"
HUB_URL = re.compile(
    r"hf://(?P<kind>datasets/|spaces/)?(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(?:@(?P<revision>[\w-][\w.-]*))?(?P<path>(?:/[\w+-][\w.+-]*)*)",
    re.ASCII,
)
BUCKET_URL = re.compile(r"s3://(?P<bucket>[A-Za-z0-9][\w.-]{1,254})(?P<prefix>(?:/[\w+-][\w.+=-]*)*)", re.ASCII)
MAX_TOKEN = 4096


def names_files(url: str) -> bool:
    """Whether a URL can only be that of a registry that is files."""
    return url.startswith((FILE, BUCKET, HUB))


@dataclass(frozen=True, slots=True)
class Hub:
    """How this user reaches the hub. `token`: of HF_TOKEN; `token_file`: where `hf auth login` puts one."""

    endpoint: str = ENDPOINT
    token: str = field(default="", repr=False)
    token_file: Path | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str], home: Path | None) -> Hub:
        """Return what the environment says."""
        above = environ.get("HF_HOME") or (home and home / ".cache" / "huggingface")
        file = environ.get("HF_TOKEN_PATH") or (above and Path(above) / "token")
        endpoint = environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
        return cls(endpoint, environ.get("HF_TOKEN", "").strip(), Path(file) if file else None)

    def base(self, url: str) -> str:
        """Return the URL below which the files of `hf://...` are."""
        from urllib.parse import quote

        found = HUB_URL.fullmatch(url)
        assert found is not None
        where = f"{found['kind'] or ''}{found['repo']}/resolve/{quote(found['revision'] or 'main', safe='')}"
        return f"{self.endpoint}/{where}{found['path']}"

    def headers(self, url: str) -> dict[str, str]:
        """Return the token for a URL of the hub itself, and nothing for any other, or without encryption."""
        same = url.startswith(f"{self.endpoint}/")
        private = url.startswith(("https://", "http://127.0.0.1:", "http://localhost:"))
        token = self._token() if same and private else ""
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _token(self) -> str:
        if self.token or self.token_file is None:
            return self.token
        with suppress(OSError, ValueError), self.token_file.open(encoding="ascii") as file:
            return file.read(MAX_TOKEN).strip()
        return ""
