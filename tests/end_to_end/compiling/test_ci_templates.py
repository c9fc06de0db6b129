"""The jobs of the CI templates run as they are written, each with the token that the template asks for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from end_to_end.conftest import unique
from end_to_end.stack import PATIENCE, Registry
from harness.programs import BIN
from paths import DATA, ROOT

from .conftest import worker_environ

ON = ("embedded",)
MATRIX = """
version: 1
defaults: {for: python}
models: [{path: model.onnx}]
batch: [1, 4]
targets: [{kind: ref, migraphx: "2.15", runner: [self-hosted]}]
"""
JOBS = {
    "github-actions.yml": ("plan", "gpu", "lock", "remote", "check"),
    "gitlab-ci.yml": ("queue", "gpu", "gpu-done", "lock", "remote", "check-lock"),
}
SETUP = re.compile(r"pip install|-m venv|GITHUB_PATH|export PATH|chmod")


def text_of(job: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """The scripts of a job, each with the variables that it adds."""
    if "steps" in job:
        steps = [step for step in job["steps"] if "run" in step]
        return [(step["run"], job.get("env", {}) | step.get("env", {})) for step in steps]
    return [("\n".join(job["script"]), job.get("variables", {}))]


@pytest.mark.parametrize("name", JOBS)
def test_every_job_does_its_work_with_its_token(registry: Registry, tmp_path: Path, name: str) -> None:
    template = (ROOT / "deploy" / "ci" / name).read_text()
    asked = dict(re.findall(r"token create (\S+) --scopes (\S+)", template))
    assert asked == {"ci": "fetch,ask,publish", "ci-gpu": "work"}
    secrets = {}
    for variable, principal in (("MXR_TOKEN", "ci"), ("MXR_WORKER_TOKEN", "ci-gpu")):
        body = {"name": f"{principal}-{name}", "scopes": asked[principal].split(",")}
        secrets[variable] = str(registry.call("POST", "/v1/tokens", body)[1]["secret"])
    unique(DATA / "models" / "convrelu.onnx", tmp_path / "model.onnx", name)
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    home = tmp_path / "home"
    (home / "site").mkdir(parents=True)
    (home / "site" / "migraphx_double.json").write_text('{"quick": true}')
    environ = worker_environ(home) | {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "MXR_REGISTRY": registry.url,
        "MXR_CACHE_DIR": str(tmp_path / ".mxr-cache"),
        "MXR_WORKER_KINDS": "ref",
        "TARGET": "ref/migraphx2.15",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_RUN_NUMBER": "7",
        "CI_PIPELINE_IID": "8",
    }
    document = yaml.safe_load(template)
    jobs = document.get("jobs", document)
    for job in JOBS[name]:
        for script, variables in text_of(jobs[job], document):
            lines = "\n".join(line for line in script.splitlines() if not SETUP.search(line))
            given = "MXR_WORKER_TOKEN" if "MXR_WORKER_TOKEN" in variables.get("MXR_TOKEN", "") else "MXR_TOKEN"
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", lines],
                env=environ | {"MXR_TOKEN": secrets[given]},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, (job, lines, done.stdout, done.stderr)
    assert (tmp_path / "mxr-junit.xml").exists() and (tmp_path / "mxr.lock").exists()
    if name.startswith("github"):
        assert '"include"' in (tmp_path / "output").read_text()
        reports = [step for job in jobs.values() for step in job["steps"] if "mxr-junit.xml" in str(step.get("with"))]
        assert len(reports) == template.count("--junit mxr-junit.xml") and all(
            step["if"] == "always()" for step in reports
        )
