"""`mxr config` shows each value and where it comes from, and never a secret."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paths import DATA

from mxr.artifact.request_defaults import NAMES
from mxr.configuration.schema import VARIABLES
from mxr_cli.main import main

Run = Callable[..., Any]
SECRET = "hunter2hunter2"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a model; the user's file is beside it, in the home folder."""
    for name in os.environ:
        if name.startswith(("MXR_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    shutil.copy(DATA / "models" / "convrelu.onnx", root / "m.onnx")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object, code: int = 0) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in words])
        printed = capsys.readouterr()
        assert ended.value.code == code, printed
        return printed

    return call


def test_each_value_and_where_it_comes_from(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project.parent / ".config" / "mxr" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'registry = "http://r:1"\ntoken = "{SECRET}"\nmax_age = "2h"\nmigraphx = "2.14"\n')
    file.chmod(0o600)
    (project / "mxr.toml").write_text('rocm = "7.2"\nmigraphx = "2.15"\nbatch = [1, 8]\ninputs.x = ["N", 3, 32, 32]\n')
    monkeypatch.setenv("MXR_TIMEOUT", "5")
    printed = run("config", "m.onnx", "--registry", "http://r:1")
    # No value is hidden because the registry cannot be asked.
    assert "the registry's defaults are not known: The token would go to r over plain http" in printed.err
    cells = {line.split()[0]: line.split()[1:] for line in printed.out.splitlines()}
    assert cells["registry"] == ["http://r:1", "--registry"]
    assert cells["timeout"] == ["5.0", "MXR_TIMEOUT"]
    assert cells["max_age"] == ["7200.0", str(file)]
    assert cells["token"] == ["set,", "not", "shown", str(file)]
    assert cells["plaintext"] == ["off", "default"]
    assert cells["migraphx"] == ["2.14", str(file)], "the user comes before the project"
    assert cells["rocm"] == ["7.2", str(project / "mxr.toml")]
    assert cells["batch"] == ["1,8", str(project / "mxr.toml")]
    assert cells["inputs.x"] == ["N,3,32,32", str(project / "mxr.toml")]
    assert cells["consumer"] == ["-"]
    document = json.loads(run("config", "m.onnx", "--json").out)
    assert set(document["settings"]) | set(document["defaults"]) == {
        *VARIABLES,
        *NAMES,
        "allow",
        "inputs.x",
        "proxy",
    } - {"inputs"}
    assert document["defaults"]["batch"] == {"value": [1, 8], "from": str(project / "mxr.toml")}
    assert document["defaults"]["consumer"] == {"value": None, "from": None}
    assert document["project_files"] == [str(project / "mxr.toml")]
    assert SECRET not in str(printed) + json.dumps(document)


def test_a_file_that_is_not_used_is_named_in_one_line(project: Path, run: Run) -> None:
    (project / "mxr.toml").write_text('rocm = "7.2"')
    (project / "mxr.toml").chmod(0o666)
    printed = run("config")
    (line,) = printed.err.splitlines()
    assert line.startswith(f"mxr: {project / 'mxr.toml'} is not used: other users can write it")
    assert json.loads(run("config", "--json").out)["unused"] == [line.removeprefix("mxr: ")]
    # Commands say it once, and go on.
    request = ("--arch", "gfx908", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "4", "--for", "python")
    assert run("key", "m.onnx", *request).err.splitlines() == [line]


def test_an_invalid_file_ends_every_request(project: Path, run: Run) -> None:
    (project / "mxr.toml").write_text(f'rocm = "7.2"\ntoken = "{SECRET}"\n')
    for words in (("config",), ("key", "m.onnx", "--arch", "gfx908"), ("fetch", "m.onnx", "--arch", "gfx908")):
        printed = run(*words, code=2)
        assert printed.err.startswith(f"mxr: {project / 'mxr.toml'}:2: a project file cannot set token.")
        assert SECRET not in printed.err


def test_defaults_complete_a_key(project: Path, run: Run) -> None:
    assert "MIGraphX" in run("key", "m.onnx", "--arch", "gfx908", code=2).err
    (project / "pyproject.toml").write_text(
        '[tool.mxr]\nrocm = "7.2"\nmigraphx = "2.15"\nconsumer = "driver"\nbatch = 4\n'
    )
    printed = run("key", "m.onnx", "--arch", "gfx908", "--json")
    key = json.loads(printed.out)["key"]
    assert (key["rocm"], key["migraphx"], key["offload_copy"]) == ("7.2", "2.15", False)
    assert key["inputs"]["x"][0] == 4
    note = f"mxr: rocm 7.2, migraphx 2.15, consumer driver, batch 4 ({project / 'pyproject.toml'})"
    assert note in run("key", "m.onnx", "--arch", "gfx908").err.splitlines()
    other = json.loads(run("key", "m.onnx", "--arch", "gfx908", "--rocm", "6.4", "--batch", "2", "--json").out)["key"]
    assert (other["rocm"], other["inputs"]["x"][0]) == ("6.4", 2)
