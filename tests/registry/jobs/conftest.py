"""Fixtures of the tests of jobs: a registry with a model to compile, and what workers can compile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from registry.registry_client import (
    GFX908,
    ONNX,
    ONNX_MODEL,
    REF,
    REF_CAPABILITIES,
    RegistryUnderTest,
    gpu_capabilities,
    gpu_key,
    ref_key,
)
from servers.rows import Databases


@pytest.fixture(scope="module")
def module_registry(
    tmp_path_factory: pytest.TempPathFactory, shared_databases: Databases
) -> Iterator[RegistryUnderTest]:
    """The registry of a module, with the model."""
    data = tmp_path_factory.mktemp("jobs") / "data"
    found = RegistryUnderTest(data, rows=shared_databases(data))
    found.register_model()
    yield found
    found.end()


@pytest.fixture
def registry(module_registry: RegistryUnderTest) -> RegistryUnderTest:
    """The registry of the module, with the usual rules and the model, and nothing else in it."""
    module_registry.clear()
    return module_registry


@pytest.fixture
def parts() -> Any:
    """The example files, keys, and what workers can compile."""

    class Parts:
        onnx, ref, gfx908, model = ONNX, REF, GFX908, ONNX_MODEL
        gpu_key = staticmethod(lambda *, model=ONNX_MODEL, **other: gpu_key(model, **other))
        ref_key = staticmethod(lambda *, model=ONNX_MODEL, **other: ref_key(model, **other))
        gpu_capabilities, ref_capabilities = staticmethod(gpu_capabilities), REF_CAPABILITIES

    return Parts
