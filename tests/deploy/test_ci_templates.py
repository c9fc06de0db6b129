"""The templates for pipelines and the pages about them: they parse, and every command in them is one that there is."""

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
PAGES = [ROOT / "docs" / name for name in ("locking.md", "airgap.md")]
CALL = re.compile(r"(?:^|[\s(])((?:mxr|mxr-worker) [^|;&)#\n]*)", re.MULTILINE)


def texts(value: Any, name: str = "") -> Iterator[str]:
    """What a runner would hand to a shell."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from texts(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, name)
    elif isinstance(value, str) and name in ("run", "script", "before_script", "after_script"):
        yield value


def calls(text: str) -> list[list[str]]:
    return [shlex.split(found) for found in CALL.findall(text)]


def check(words: list[str]) -> None:
    """Fails unless the real command takes these words."""
    program, name, *rest = words
    if program == "mxr-worker":
        assert isinstance(worker, click.Group)
        command = worker.get_command(click.Context(worker), name)
    else:
        assert name in COMMANDS, words
        command = mxr.get_command(click.Context(mxr), name)
    assert command is not None, words
    command.make_context(name, rest).close()


def test_there_is_one_for_each_service() -> None:
    assert [path.name for path in TEMPLATES] == ["github-actions.yml", "gitlab-ci.yml"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_command_of_a_template_is_one_that_there_is(path: Path) -> None:
    found = [words for text in texts(yaml.safe_load(path.read_text())) for words in calls(text)]
    for words in found:
        check(words)
    said = [" ".join(words) for words in found]
    for wanted in ("mxr lock --check", "mxr precompile matrix.yaml", "mxr-worker run --drain", "mxr verify"):
        assert any(each.startswith(wanted) for each in said), wanted


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_of_a_page_is_one_that_there_is(path: Path) -> None:
    blocks = re.findall(r"```\n(.*?)```", path.read_text(), re.DOTALL)
    found = [words for block in blocks for words in calls(block)]
    assert len(found) >= 4
    for words in found:
        check(words)


def test_a_command_that_there_is_not_would_be_found() -> None:
    for text in ("mxr lock --chek", "mxr bake matrix.yaml", "mxr verify a b c", "mxr-worker run --drian"):
        with pytest.raises((click.ClickException, AssertionError)):
            check(*calls(text))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_the_cache_is_kept_where_mxr_looks_for_it(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"MXR_CACHE_DIR: \S*\$\S+.*/\.mxr-cache", text)
    assert re.search(r"path: \.mxr-cache|paths: \[\.mxr-cache/\]", text)


def test_jobs_of_github_need_jobs_that_there_are() -> None:
    document = yaml.safe_load(TEMPLATES[0].read_text())
    jobs = document["jobs"]
    for name, job in jobs.items():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs), name
        assert job["steps"] and all(set(step) & {"run", "uses"} for step in job["steps"])
    assert set(document[True]) == {"pull_request", "push"}


def test_jobs_of_gitlab_are_in_stages_that_there_are() -> None:
    document = yaml.safe_load(TEMPLATES[1].read_text())
    jobs = {name: each for name, each in document.items() if name not in ("stages", "variables")}
    for name, job in jobs.items():
        if name.startswith("."):
            continue
        assert job["stage"] in document["stages"], name
        assert job["script"] and job["rules"]
        assert job.get("extends", ".mxr") in jobs
