"""Parts for the tests of the real programs: a registry, hosts, models and programs that no other test uses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness.scale import SOAK
from paths import DATA
from servers.rows import Databases

from .stack import STACKS, Host, Registry, Stack

GPU = ("--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "4", "--for", "python")
"""The request that the spliced gfx908 program is right for."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    # A module or a test whose subject is the database or the store names its stacks. The others run on the embedded
    # stack, and in a soak run on both.
    items[:] = [item for item in items if _wanted(item)]
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.end_to_end)
            item.add_marker(pytest.mark.timeout(400))


def _wanted(item: pytest.Item) -> bool:
    spec = getattr(item, "callspec", None)
    name = spec.params.get("stack") if spec else None
    mark = item.get_closest_marker("on")
    usual = STACKS if SOAK else ("embedded",)
    on = mark.args if mark else getattr(getattr(item, "module", None), "ON", usual)
    return name is None or name in on


@pytest.fixture(scope="module", params=[name for name in STACKS if os.environ.get("MXR_TEST_STACK", name) == name])
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """What stands behind the registries: each test that has one runs on both stacks (MXR_TEST_STACK: on that one)."""
    rows = "sqlite" if request.param == "embedded" else "postgresql"
    databases = Databases(rows, lambda: request.getfixturevalue("postgresql"))
    # A module that puts something before the registry says SIGNED = False.
    signed = getattr(request.module, "SIGNED", True)
    found = Stack(request.param, databases, lambda: request.getfixturevalue("swift"), signed)
    yield found
    found.drop()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Registry]:
    """The registry of this module; a test that stops it starts it again."""
    found = Registry(tmp_path_factory.mktemp("registry"), stack)
    yield found
    found.stop()


@pytest.fixture
def own_registry(tmp_path: Path, stack: Stack) -> Iterator[Callable[..., Registry]]:
    """Starts registries that this test alone uses."""
    started: list[Registry] = []

    def begin(**options: Any) -> Registry:
        started.append(Registry(tmp_path / f"registry-{len(started)}", stack, **options))
        return started[-1]

    yield begin
    for each in started:
        each.kill9()


@pytest.fixture
def host(tmp_path: Path, registry: Registry) -> Callable[..., Host]:
    """Makes hosts: `host("b")` has a cache of its own, `host("c", url)` asks another registry."""

    def make(name: str, url: str | None = None) -> Host:
        return Host(tmp_path / "hosts" / name, url or registry.url)

    return make


@pytest.fixture
def mxr(host: Callable[..., Host]) -> Host:
    """The host of a person who publishes, and looks around."""
    return host("publisher")


@pytest.fixture
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """An ONNX model that is this test's alone: what it publishes for it meets nobody else's."""
    return unique(DATA / "models" / "convrelu.onnx", tmp_path / "convrelu.onnx", request.node.nodeid)


def unique(source: Path, final: Path, text: str) -> Path:
    """The same model with another documentation text, and so another hash: a protobuf may be appended to.

    Source: onnx/onnx, onnx/onnx.proto, ModelProto.doc_string = 6.
    """
    words = text.encode()[-100:]
    final.write_bytes(source.read_bytes() + b"\x32" + bytes([len(words)]) + words)
    return final


@pytest.fixture
def convnet(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The model of the programs that a real MIGraphX compiled for its reference target; again this test's alone."""
    return unique(DATA / "models" / "convnet.onnx", tmp_path / "convnet.onnx", request.node.nodeid)


@dataclass(frozen=True, slots=True)
class Programs:
    """Example programs by short names."""

    gfx908: Path = DATA / "mxr_spliced" / "v7_gfx908_sramecc+_xnack-.cov5.mxr"
    gfx942: Path = DATA / "mxr_spliced" / "v7_gfx942_sramecc+_xnack-.cov5.mxr"
    gfx1100: Path = DATA / "mxr_spliced" / "v7_gfx1100.cov5.mxr"
    generic: Path = DATA / "mxr_spliced" / "v7_gfx11-generic.cov6.mxr"
    ref: Path = DATA / "mxr_real" / "convnet_b4_fp16_ref.mxr"
    ref32: Path = DATA / "mxr_real" / "convnet_b4_fp32_ref.mxr"
    uncompiled: Path = DATA / "mxr_real" / "convnet_b4_uncompiled.mxr"


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Example programs."""
    return Programs()


@pytest.fixture(scope="session")
def gpu() -> tuple[str, ...]:
    """The options of the request that the gfx908 program is right for."""
    return GPU


@pytest.fixture
def published(mxr: Host, model: Path, programs: Programs) -> dict[str, Any]:
    """The gfx908 program, published for this test's model; the document of `mxr push`."""
    said: dict[str, Any] = mxr(
        "push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json"
    ).json
    return said


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A copy of the model whose weights are in a second file."""
    for name in ("mlp_ext.onnx", "mlp_ext.onnx.data"):
        shutil.copy(DATA / "models" / name, tmp_path / name)
    return tmp_path / "mlp_ext.onnx"
