"""docs/access.md lists the scopes as the code has them."""

from __future__ import annotations

import re

from paths import ROOT

from mxr.protocol.access import SCOPES


def test_the_page_has_each_scope_with_what_it_allows() -> None:
    page = (ROOT / "docs" / "access.md").read_text()
    table = page.partition("| scope | may |")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)) == dict(SCOPES)
