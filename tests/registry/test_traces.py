"""OpenTelemetry, as docs/operate.md starts it: without code of this project, which must not stand in its way."""

from __future__ import annotations

import json
import os
import re
import select
import time
from pathlib import Path
from typing import Any

import pytest
from harness.programs import BIN
from harness.registry import RegistryProcess
from paths import ROOT
from registry.registry_client import registry_environ

pytestmark = pytest.mark.process

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def variables() -> dict[str, str]:
    """Those of the documentation."""
    page = (ROOT / "docs" / "operate.md").read_text()
    return dict(re.findall(r"(OTEL_\w+)=(\S+)", page[page.index("### Traces") :]))


def spans(server: RegistryProcess, trace: str, seconds: float = 60) -> list[dict[str, Any]]:
    """The spans of a trace that the registry printed, once that of the request itself is among them."""
    assert server.process.stdout is not None
    text, end = "", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([server.process.stdout], [], [], 0.2)[0]:
            text += os.read(server.process.stdout.fileno(), 1 << 16).decode()
        rows = [json.loads(each) for each in re.findall(r"^\{\n.*?^\}$", text, re.MULTILINE | re.DOTALL)]
        found = [row for row in rows if row["context"]["trace_id"] == f"0x{trace}"]
        if any(row["kind"] == "SpanKind.SERVER" for row in found):
            return found
    raise AssertionError(f"no span of the request: {text[-3000:]}")


def test_a_request_is_a_span_of_its_callers_trace_and_has_its_id(tmp_path: Path) -> None:
    environ = registry_environ({}) | variables()
    environ |= {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    server = RegistryProcess(tmp_path / "data", environ, through=(str(BIN / "opentelemetry-instrument"),))
    try:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
        path = f"/v1/artifacts/{'ab' * 32}"
        assert server.http.request("GET", server.url + path, headers={**server.http.headers, **headers}).status == 404
        (span,) = [each for each in spans(server, TRACE) if each["kind"] == "SpanKind.SERVER"]
        assert span["parent_id"] == f"0x{PARENT}"
        assert span["attributes"]["http.route"] == "/v1/artifacts/{id}"
        assert span["attributes"]["http.status_code"] == 404
        assert span["attributes"]["http.response.header.x_request_id"] == ["mine"]
        assert span["resource"]["attributes"]["service.name"] == "mxr-registry"
    finally:
        server.stop()
