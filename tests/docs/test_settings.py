"""The pages and the files in deploy/ have every setting of the services, as the schema has it."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from mxr.configuration.printing import reference, sample_file
from mxr.configuration.schema import VARIABLES, ServiceSchema
from mxr_registry.config.settings import SCHEMA as REGISTRY
from mxr_workers.settings import SCHEMA as WORKER

OPERATE = (ROOT / "docs" / "operate.md").read_text()
SCHEMAS = {"registry": REGISTRY, "worker": WORKER}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_page_has_the_table_of_the_schema(name: str) -> None:
    schema = SCHEMAS[name]
    assert reference(schema) in OPERATE, f"docs/operate.md must have:\n{reference(schema)}"
    for example in schema.lists.values():
        assert example.partition("\n[[")[2] in OPERATE


@pytest.mark.parametrize("name", SCHEMAS)
def test_deploy_has_the_sample(name: str) -> None:
    schema: ServiceSchema = SCHEMAS[name]
    path = ROOT / "deploy" / f"{name}.toml"
    assert path.read_text() == sample_file(schema), f"run `{schema.program} config sample > deploy/{name}.toml`"


def test_every_variable_of_the_code_is_a_setting() -> None:
    settings = {each.variable for schema in SCHEMAS.values() for each in schema.settings}
    known = settings | {schema.file_variable for schema in SCHEMAS.values()} | {*VARIABLES.values()}
    for folder in ("core", "registry", "compiler_workers", "cli", "migrations"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"\bMXR_[A-Z0-9_]*[A-Z0-9]\b", path.read_text()):
                assert name in known or name in EXAMPLES, f"{path}: {name} is no setting"


EXAMPLES = {"MXR_REGISTRY_PORT", "MXR_LIMITS_BODY", "MXR_PORT"}
"""Names in comments and messages."""
