"""Where the files of `hf://` are, and who gets the token."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxr.configuration.file_urls import BUCKET_URL, HUB_URL, Hub


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("hf://team/models", "https://huggingface.co/team/models/resolve/main"),
        ("hf://team/models/mxr/a", "https://huggingface.co/team/models/resolve/main/mxr/a"),
        ("hf://team/models@v1.2/mxr", "https://huggingface.co/team/models/resolve/v1.2/mxr"),
        ("hf://datasets/team/models@0a1b/mxr", "https://huggingface.co/datasets/team/models/resolve/0a1b/mxr"),
    ],
)
def test_where_files_are(url: str, base: str) -> None:
    assert HUB_URL.fullmatch(url) and Hub().base(url) == base


@pytest.mark.parametrize(
    "bad", ["hf://a", "hf://a/b/..", "hf://a/b@../x", "hf://a/b?x", "hf://a/b/%2e%2e", "hf://a/b//c"]
)
def test_what_is_no_address(bad: str) -> None:
    assert HUB_URL.fullmatch(bad) is None


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        *[("s3://bucket", True), ("s3://my.bucket-1/mxr/v=1", True), ("s3://bucket/a/../b", False)],
        *[
            ("s3://bucket//a", False),
            ("s3://bucket/a?versionId=1", False),
            ("s3://user@bucket", False),
            ("s3://", False),
        ],
    ],
)
def test_what_a_bucket_is_called(url: str, fits: bool) -> None:
    assert (BUCKET_URL.fullmatch(url) is not None) == fits


def test_the_token_goes_to_the_hub_only(tmp_path: Path) -> None:
    hub = Hub.of({"HF_TOKEN": "hf_secret", "HF_ENDPOINT": "https://hub.example.com/"}, None)
    assert "hf_secret" not in repr(hub)
    assert hub.headers("https://hub.example.com/a/b") == {"Authorization": "Bearer hf_secret"}
    for other in ("https://hub.example.com.evil.net/a", "https://cdn.example.com/a", "http://hub.example.com/a"):
        assert hub.headers(other) == {}
    assert Hub("http://hub.example.com", "hf_secret").headers("http://hub.example.com/a") == {}, "not in the clear"
    (tmp_path / ".cache" / "huggingface").mkdir(parents=True)
    assert Hub.of({}, tmp_path).headers("https://huggingface.co/a") == {}
    (tmp_path / ".cache" / "huggingface" / "token").write_text("hf_file\n")
    assert Hub.of({}, tmp_path).headers("https://huggingface.co/a") == {"Authorization": "Bearer hf_file"}
    assert Hub.of({"HF_HOME": str(tmp_path / "none")}, tmp_path).headers("https://huggingface.co/a") == {}
