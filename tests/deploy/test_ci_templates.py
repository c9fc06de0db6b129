"""The CI templates, the KServe image and the pages about them: they parse, and every command in them exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from paths import ROOT

from mxr_cli.main import COMMANDS, mxr
from mxr_workers.main import program as worker

TEMPLATES = sorted((ROOT / "deploy" / "ci").glob("*.yml"))
PAGES = [ROOT / "docs" / name for name in ("locking.md", "airgap.md", "pipelines.md")]
COMMAND_LINE = re.compile(r"(?:^|[\s(])((?:mxr|mxr-worker) [^|;&)#\n]*)", re.MULTILINE)
WHEEL = "mxr_cache-0.1.0-py3-none-any.whl"


def scripts(value: Any, name: str = "") -> Iterator[str]:
    """The texts that a runner passes to a shell."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from scripts(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from scripts(each, name)
    elif isinstance(value, str) and name in ("run", "script", "before_script", "after_script"):
        yield value


def command_lines(text: str) -> list[list[str]]:
    """Every call of `mxr` or `mxr-worker` in a shell text, split into words."""
    return [shlex.split(found) for found in COMMAND_LINE.findall(text)]


def check(words: list[str]) -> None:
    """Fails unless the real command accepts these words."""
    program, name, *rest = words
    if program == "mxr-worker":
        assert isinstance(worker, click.Group)
        command = worker.get_command(click.Context(worker), name)
    else:
        assert name in COMMANDS, words
        command = mxr.get_command(click.Context(mxr), name)
    assert command is not None, words
    command.make_context(name, rest).close()


def test_there_is_one_template_for_each_service() -> None:
    assert [path.name for path in TEMPLATES] == ["github-actions.yml", "gitlab-ci.yml"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_command_of_a_template_exists(path: Path) -> None:
    found = [words for text in scripts(yaml.safe_load(path.read_text())) for words in command_lines(text)]
    for words in found:
        check(words)
    lines = [" ".join(words) for words in found]
    for expected in ("mxr lock --check", "mxr precompile matrix.yaml", "mxr-worker run --drain", "mxr verify"):
        assert any(line.startswith(expected) for line in lines), expected


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_of_a_page_exists(path: Path) -> None:
    blocks = re.findall(r"```\n(.*?)```", path.read_text(), re.DOTALL)
    found = [words for block in blocks for words in command_lines(block)]
    assert len(found) >= 4
    for words in found:
        check(words)


def test_an_unknown_command_or_option_is_found() -> None:
    for text in ("mxr lock --chek", "mxr bake matrix.yaml", "mxr verify a b c", "mxr-worker run --drian"):
        with pytest.raises((click.ClickException, AssertionError)):
            check(*command_lines(text))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_the_saved_cache_is_the_one_that_mxr_uses(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"MXR_CACHE_DIR: \S*\$\S+.*/\.mxr-cache", text)
    assert re.search(r"path: \.mxr-cache|paths: \[\.mxr-cache/\]", text)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_installs_the_wheel(path: Path) -> None:
    """Nothing is published on a package index, where `mxr` belongs to another project."""
    document = yaml.safe_load(path.read_text())
    variables = document.get("env") or document["variables"]
    assert variables["MXR_WHEEL"] == f"tools/{WHEEL}"
    installs = [line.strip() for text in scripts(document) for line in text.splitlines() if "pip install" in line]
    assert installs
    for line in installs:
        assert shlex.split(line)[-1] in ("$MXR_WHEEL", "${MXR_WHEEL}[workers]"), line


def test_the_kserve_image_is_that_of_the_client() -> None:
    text = (ROOT / "deploy" / "kserve" / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=mxr\n", text, re.MULTILINE) and 'ENTRYPOINT ["mxr", "kserve-init"]' in text
    check(["mxr", "kserve-init", "mxr://sha256:0", "/mnt/models"])


def test_jobs_of_github_need_jobs_that_exist() -> None:
    document = yaml.safe_load(TEMPLATES[0].read_text())
    jobs = document["jobs"]
    for name, job in jobs.items():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs), name
        assert job["steps"] and all(set(step) & {"run", "uses"} for step in job["steps"])
    assert set(document[True]) == {"pull_request", "push"}


def test_jobs_of_gitlab_are_in_stages_that_exist() -> None:
    document = yaml.safe_load(TEMPLATES[1].read_text())
    jobs = {name: each for name, each in document.items() if name not in ("stages", "variables")}
    for name, job in jobs.items():
        if name.startswith("."):
            continue
        assert job["stage"] in document["stages"], name
        assert job["script"] and job["rules"]
        assert job.get("extends", ".mxr") in jobs
