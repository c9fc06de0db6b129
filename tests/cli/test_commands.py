"""The command group: every command has a module, and starting `mxr` imports no more than it needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from harness.rows import for_each
from identities import model_of
from paths import DATA, ROOT

from mxr.errors import NoSuchArtifactError
from mxr_cli.main import COMMANDS, GROUPS, main, mxr
from mxr_cli.output import ErrorFormat, print_error


@for_each(COMMANDS)
def test_every_command_has_a_module_and_help(name: str) -> None:
    with click.Context(mxr, info_name="mxr") as parent:
        command = mxr.get_command(parent, name)
        assert command is not None and command.name == name
        text = command.get_help(click.Context(command, info_name=name, parent=parent))
    assert text.startswith(f"Usage: mxr {name} ")
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


SCREEN = 50
"""Lines."""


def help_of(name: str, *words: str) -> str:
    parent = click.Context(mxr, info_name="mxr", terminal_width=80)
    command = mxr.get_command(parent, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent, terminal_width=80)
    context.meta.update(dict.fromkeys(["mxr_cli.help"] if words else [], True))
    return command.get_help(context)


@for_each(COMMANDS)
def test_the_help_of_a_command_fits_one_screen_and_help_all_has_every_option(name: str) -> None:
    lines = help_of(name).splitlines()
    assert len(lines) <= SCREEN
    command = mxr.get_command(click.Context(mxr), name)
    assert command is not None
    shown = help_of(name, "--help-all")
    for parameter in command.params if name != "cache" else ():
        if isinstance(parameter, click.Option):
            listed = re.findall(rf"^  (?:-\w, )?{parameter.opts[-1]}\b(?!-)", shown, re.MULTILINE)
            assert len(listed) == 1, parameter.name


def test_the_commands_are_listed_in_groups_and_the_exit_codes_last(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    at = [shown.index(f"\n{title}:\n") for title in (*GROUPS, "Exit codes".rjust(12))]
    assert at == sorted(at) and shown.endswith("130 interrupted\n")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("version", "mxr --version"), ("pull", "mxr fetch"), ("fecth", "mxr fetch"), ("remove", "mxr rm")],
)
def test_a_word_of_another_program_is_answered_with_the_command(
    given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([given])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"mxr: Unknown command '{given}'.\n     Did you mean {meant}?\n"


def test_help_imports_no_command_and_no_client() -> None:
    """The start-up time of `mxr` is part of every fetch."""
    code = (
        "import sys; from mxr_cli.main import main\n"
        "try: main(['--help'])\n"
        "finally: print(*(name for name in sys.modules if name.startswith(('mxr', 'urllib3'))), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert "mxr_cli.main" in loaded
    assert not [name for name in loaded if name.startswith(("mxr_cli.commands", "mxr.client", "mxr.api", "urllib3"))]


def test_a_fetch_that_the_cache_decides_imports_no_client(tmp_path: Path) -> None:
    code = "import sys; from mxr_cli.main import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules)"
    model = ROOT / "examples" / "models" / "convnet.onnx"
    words = ["fetch", str(model), "--kind", "ref", "--migraphx", "2.15", "--batch", "1", "--for", "python", "--offline"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--cache-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 69 and "mxr.workflows.fetch" in done.stdout.split()
    assert not {"mxr.client", "mxr.client.registry", "urllib3"} & {*done.stdout.split()}


REGISTRY_OPTIONS = {"registry", "token", "plaintext"}


@for_each(["check", "consumers", "diff", "explain", "freeze", "host", "inspect", "verify"])
def test_a_command_that_uses_no_registry_has_no_options_for_one(name: str) -> None:
    command = mxr.get_command(click.Context(mxr), name)
    assert command is not None
    assert not REGISTRY_OPTIONS & {parameter.name for parameter in command.params}


def test_the_identity_of_a_model_is_printed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a GPU nor a registry is there."""
    monkeypatch.setenv("MXR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MXR_REGISTRY", "http://127.0.0.1:9")
    monkeypatch.setenv("MXR_RETRY", "0")
    model = DATA / "models" / "mlp_ext.onnx"
    external = {path.name: path.read_bytes() for path in model.parent.glob("mlp_ext.onnx*") if path != model}
    expected = model_of(model.read_bytes(), external)
    for words, printed in ((["identity", str(model)], expected), (["identity", expected], expected)):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert (ended.value.code, capsys.readouterr().out) == (0, printed + "\n")
    with pytest.raises(SystemExit):
        main(["identity", str(model), "--json"])
    assert json.loads(capsys.readouterr().out) == {"model": expected}


@pytest.mark.parametrize("value", [None, 5, "x", [], [5], ["x"], [{}], [{"id": 5}], {"id": "x"}])
@pytest.mark.parametrize("name", ["nearest", "candidates", "toolchains"])
def test_a_detail_of_any_form_is_printed_without_a_fault(
    name: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """The detail of an error comes from a registry, which may lie."""
    rows = value if not isinstance(value, list) else [*value, {"id": 5, "differences": value, "options": value}]
    error = NoSuchArtifactError("nothing", hint="", context={name: rows})
    assert print_error(error, ErrorFormat()) == 3
    assert capsys.readouterr().err.startswith("mxr: nothing")
