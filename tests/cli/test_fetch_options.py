"""The options of `mxr fetch` as the typed value that the rest of the client reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mxr.plans.plan import OnMiss
from mxr.request.builder import RequestOptions
from mxr_cli.commands import fetch as fetch_command
from mxr_cli.fetching.fetch_options import FetchOptions, OrtOptions
from mxr_cli.main import main
from mxr_cli.options import Session

Parse = Callable[..., tuple[Session, FetchOptions]]

DEFAULTS = FetchOptions(request=RequestOptions(), batches=(), on_miss=OnMiss(), ort=OrtOptions(), model="m.onnx")


@pytest.fixture
def parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Parses a command line of `mxr fetch`, without running it."""
    seen: list[tuple[Session, FetchOptions]] = []

    def fetch(session: Session, options: FetchOptions) -> dict[str, Any]:
        seen.append((session, options))
        return {"path": "p.mxr"}

    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MXR_CONSUMER", "MXR_REGISTRY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetch_command, "_fetch", fetch)

    def run(*arguments: str) -> tuple[Session, FetchOptions]:
        with pytest.raises(SystemExit) as ended:
            main(["fetch", *arguments])
        assert ended.value.code == 0
        return seen[-1]

    return run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {}),
        (("--batch", "8"), {"request": RequestOptions(batch=8)}),
        (("--batch", "4,1"), {"batches": (1, 4)}),
        (("--for", "triton", "--exact"), {"request": RequestOptions(consumer="triton", exact=True)}),
        (("--allow", "cu, patch"), {"request": RequestOptions(allow=("cu", "patch"))}),
        (("-o", "out/", "--name", "net"), {"output": "out/", "name": "net"}),
        (("-o", "out/", "--force", "--link"), {"output": "out/", "force": True, "link": True}),
        (("--offline",), {"offline": True}),
        (("--refresh",), {"refresh": True}),
        (("--locked",), {"locked": ""}),
        (("--locked=prod.lock",), {"locked": "prod.lock"}),
        (("--on-miss", "wait=90", "--retry", "-v"), {"on_miss": OnMiss("wait", 90.0, True, True)}),
        (
            ("--ort", "1.27.1", "--ort-python", "py", "--ort-migraphx", "2.15", "--ort-level", "basic", "--ort-bytes"),
            {"ort": OrtOptions("1.27.1", "py", "2.15", "basic", True)},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_each_option_has_a_field(parse: Parse, arguments: tuple[str, ...], expected: dict[str, Any]) -> None:
    session, options = parse("m.onnx", *arguments)
    assert options == replace(DEFAULTS, **expected)
    assert not session.whole_node


def test_a_configuration_instead_of_a_model(parse: Parse) -> None:
    assert parse("--genai-config", "c.json")[1] == replace(DEFAULTS, model=None, genai_config="c.json")


def test_the_session(parse: Parse) -> None:
    session, _ = parse("m.onnx", "--whole-node", "--json", "--registry", "http://example:1", "--cache-dir", "c")
    assert session.whole_node and session.as_json
    assert (session.settings.registry, session.settings.cache_dir) == ("http://example:1", Path("c"))
    assert session.connect(offline=True) is None and session.connect(offline=False) is not None


def test_the_consumer_defaults_to_the_settings(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXR_CONSUMER", "driver")
    assert parse("m.onnx")[1].request.consumer == "driver"
    assert parse("m.onnx", "--for", "python")[1].request.consumer == "python"


def test_ort_options_as_a_mapping() -> None:
    """Only options that are set: the core reads the names that are present."""
    assert OrtOptions(ort="B", ort_bytes=True).as_mapping() == {
        "ort": "B",
        "ort_bytes": "True",
    }
