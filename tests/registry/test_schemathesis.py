"""Schemathesis sends what the OpenAPI document allows and what it forbids, and judges each reply by it.

Its four phases: the examples of the document; each rule of each schema kept, and in soak runs broken (half a minute);
random values; and sequences of operations in which one uses what another one answered. A run is bounded by the number
of examples; the last two also by a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from harness.api_document import operations
from harness.registry import by_socket
from harness.scale import SOAK
from paths import ROOT
from registry.registry_client import Start

PROGRAM = Path(sysconfig.get_path("scripts"), "schemathesis")
CONFIG = ROOT / "tests" / "registry" / "schemathesis.toml"

EXAMPLES, SECONDS = (200, 900) if SOAK else (2, 10)
WHOLE, RANDOM, FEW = "examples,coverage", "fuzzing,stateful", "coverage"

AUTH = """
[auth.openapi.token]
bearer = "${TOKEN}"
"""


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


@pytest.mark.timeout(2 * SECONDS + 240)
@pytest.mark.parametrize("token", [True, False] if SOAK else [True], ids=lambda token: "token" if token else "no token")
def test_no_request_gets_a_reply_that_the_document_does_not_describe(start: Start, tmp_path: Path, token: bool) -> None:
    """With a token that may do everything, it also drops and changes the token where the document asks for one.

    Without one, in a soak run: access/test_scopes sends every operation wrong tokens, and none.
    """
    # One of its own: what the other run sent last may still be handled.
    server = start()
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG.read_text() + (AUTH if token else ""))
    before = server.ok("GET", "/v1/tokens")["items"]
    environ = os.environ | {"TOKEN": server.tokens["admin"]}
    for phases in (WHOLE, RANDOM) if token else (FEW,):
        words = [PROGRAM, "--config-file", config, "run", f"{server.url}/openapi.json", "--phases", phases]
        words += ["--max-examples", EXAMPLES, "--request-timeout", 30, "--no-color"]
        # Random values and sequences have a time; of the others no operation is left out, however busy the machine is.
        words += ["--max-time", SECONDS] if phases == RANDOM else ["--mode", "all" if SOAK else "positive"]
        done = subprocess.run(
            list(map(str, words)), cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-20_000:]
        assert phases == RANDOM or f"Tested: {len(operations())}" in done.stdout, done.stdout[-2_000:]
    assert "Traceback" not in server.log.read_text()
    assert by_socket(server.socket_path, "GET", "/readyz")[0] == 200
    # By the socket: a sequence can list the tokens, and revoke the one that it has.
    made = json.loads(by_socket(server.socket_path, "GET", "/v1/tokens")[1])["items"] != before
    assert made == token, "tokens were made by requests that had one, and by these only"
