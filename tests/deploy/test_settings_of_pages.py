"""The settings in docs/operate.md and in the comments of deploy/nginx: the registry takes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

from mxr_registry.config.settings import RegistrySettings

BLOCKS = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / "operate.md").read_text(), re.MULTILINE | re.DOTALL)
COMMENTS = {
    path.name: "[serve]\n" + "\n".join(re.findall(r'^#   (\w+ = (?:".*?"|\[.*?\]))', path.read_text(), re.MULTILINE))
    for path in sorted((ROOT / "deploy" / "nginx").glob("mxr*.conf"))
    if path.name != "mxr-proxy.conf"
}


@pytest.mark.parametrize("text", [*BLOCKS, *COMMENTS.values()])
def test_the_registry_takes_them(text: str, tmp_path: Path) -> None:
    for each in (text, re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE)):
        path = tmp_path / "registry.toml"
        path.write_text(each)
        RegistrySettings.read({"HOME": "/home/x"}, file=path)


def test_each_proxy_needs_to_be_trusted() -> None:
    assert set(COMMENTS) == {"mxr.conf", "mxr-sub-path.conf"}
    assert all("trusted_proxies" in text and "allowed_hosts" in text for text in COMMENTS.values())
    assert "root_path" in COMMENTS["mxr-sub-path.conf"]
