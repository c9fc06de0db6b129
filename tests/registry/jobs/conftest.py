"""Fixtures of the tests of jobs: a registry with a model to compile, and what workers can compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from registry.registry_client import ONNX_MODEL, Parts, RegistryUnderTest
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
def parts() -> Parts:
    """The example files, keys of the model that the registry has, and what workers can compile."""
    return Parts(ONNX_MODEL)
