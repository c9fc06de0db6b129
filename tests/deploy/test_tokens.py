"""The templates take tokens from secrets, and have none."""

from __future__ import annotations

from typing import Any

import yaml
from harness.rows import for_each
from paths import ROOT

from mxr.protocol.access import TOKEN

FILES = sorted(path for path in (ROOT / "deploy").rglob("*") if path.is_file())


@for_each(FILES)
def test_no_file_has_a_token(path: Any) -> None:
    text = path.read_text()
    assert not TOKEN.search(text) and "MXR_PLAINTEXT:" not in text


def test_github_takes_it_from_a_secret() -> None:
    found = yaml.safe_load((ROOT / "deploy" / "ci" / "github-actions.yml").read_text())
    assert found["env"]["MXR_TOKEN"] == "${{ secrets.MXR_TOKEN }}"


def test_gitlab_takes_it_from_a_masked_variable() -> None:
    text = (ROOT / "deploy" / "ci" / "gitlab-ci.yml").read_text()
    found = yaml.safe_load(text)
    assert found["gpu"].pop("variables") == {"MXR_TOKEN": "$MXR_WORKER_TOKEN"}
    assert "_TOKEN" not in str(found) and "MXR_TOKEN          a token of the registry, masked" in text


def test_kserve_takes_it_from_a_secret_and_speaks_tls() -> None:
    found = yaml.safe_load((ROOT / "deploy" / "kserve" / "storage-container.yaml").read_text())
    environ = {each["name"]: each for each in found["spec"]["container"]["env"]}
    assert environ["MXR_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "mxr-token", "key": "token"}}
    assert environ["MXR_REGISTRY"]["value"].startswith("https://")
