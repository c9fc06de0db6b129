"""The matrix: its fields, error messages with line numbers, and the expansion to cells."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from mxr import matrix
from mxr.artifact import compile_support, target
from mxr.errors import MxrError, UsageError
from mxr.matrix import Cell, document, fields
from mxr.matrix.fields import MATRIX

DOCS = ROOT / "docs"

CONTRACT = """\
version: 1
defaults: {for: python, tuning: default}
models:
  - path: models/resnet50.onnx          # globs allowed
    batch: [1, 8, 64]
  - path: models/bert.onnx
    inputs: {input_ids: [N, 384], attention_mask: [N, 384]}
batch: [1]                              # for all that name none
precision: [fp32, fp16]
targets:
  - {arch: gfx908, rocm: "7.2", migraphx: "2.15"}
  - {arch: gfx942, num_cu: 304, rocm: "7.2", migraphx: "2.15"}
  - {kind: ref, migraphx: "2.16"}
exclude:
  - {arch: gfx908, precision: fp8}
"""
TAIL = 'batch: [1]\ntargets: [{arch: gfx942, rocm: "7.2", migraphx: "2.15"}]\n'
"""Together with one model, a matrix of one cell."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two model files. Their contents do not matter: a matrix does not read them."""
    (tmp_path / "models").mkdir()
    for name in ("resnet50", "bert"):
        (tmp_path / "models" / f"{name}.onnx").write_bytes(b"a model")
    (tmp_path / "samples.npz").write_bytes(b"samples")
    return tmp_path


def cells(folder: Path, text: str, environ: dict[str, str] | None = None, limit: int | None = None) -> tuple[Cell, ...]:
    path = folder / "matrix.yaml"
    path.write_text(text)
    return matrix.cells(matrix.read_matrix(path, matrix.Variables(environ or {}, tuple(environ or ())), limit))


def error_of(folder: Path, text: str, environ: dict[str, str] | None = None) -> UsageError:
    """The error for an invalid matrix, which names the file and a line and has a hint."""
    with pytest.raises(UsageError) as found:
        cells(folder, text, environ)
    problem = found.value
    line = problem.context["line"]
    assert problem.message.startswith(f"{folder / 'matrix.yaml'}:{line}: ") and problem.hint
    assert 1 <= line <= text.count("\n") + 1
    return problem


def test_the_matrix_of_the_documentation(folder: Path) -> None:
    """Models x targets x batches x precisions, in file order."""
    found = cells(folder, CONTRACT)
    assert len(found) == 3 * 3 * 2 + 3 * 2
    first, last = found[0], found[-1]
    assert (first.name, first.line, first.target_line) == ("models/resnet50.onnx", 4, 11)
    assert (first.target, first.variant) == ("gfx908/rocm7.2/migraphx2.15", "batch 1 fp32 python")
    assert last.options.inputs == (("input_ids", (1, 384)), ("attention_mask", (1, 384)))
    assert (last.target, last.options.kind, last.options.arch) == ("ref/migraphx2.16", "ref", None)
    assert [cell.target for cell in found[:7]][-1] == "gfx942/304cu/rocm7.2/migraphx2.15"


BAD = [
    ("version: 1\nmodles: []\n", 2, "no field 'modles'", "models"),
    ("version: 2\nmodels: []\n", 1, "'2' is not", "1"),
    ("models: []\n", 1, "needs a field 'version'", "Version"),
    ("version: 1\nversion: 1\n", 2, "duplicate", "Remove"),
    ("version: 1\nmodels: {path: a.onnx}\n", 2, "Expected a list", "- "),
    ("version: 1\nmodels:\n  - batch: 1\n" + TAIL, 3, "needs a field 'path'", "ONNX"),
    ("version: 1\nmodels:\n  - path: models/none.onnx\n" + TAIL, 3, "does not exist", "relative"),
    ("version: 1\nmodels:\n  - path: models/*.pb\n" + TAIL, 3, "No file matches", "relative"),
    ("version: 1\nmodels:\n  - path: sha256:12\n" + TAIL, 3, "not the identity of a model", "sha256:"),
    (
        "version: 1\nenv_from: NOWHERE\nmodels: [{path: '${NOWHERE}/a.onnx'}]\n" + TAIL,
        3,
        "NOWHERE is not set",
        "${NOWHERE:-default}",
    ),
    ("version: 1\nmodels:\n  - path: ${oops\n" + TAIL, 3, "cannot be parsed", "${NAME}"),
    ("version: 1\nmodels: [{path: models/bert.onnx}]\nbatch: [0]\n", 3, "whole number from 1", "Write"),
    ("version: 1\nmodels: [{path: models/bert.onnx}]\nbatch: []\n", 3, "empty", "Write"),
    ("version: 1\nmodels: [{path: models/bert.onnx}]\nprecision: fp17\n", 3, "not a precision", "fp16"),
    ("version: 1\nmodels: [{path: models/bert.onnx}]\nfor: pyton\n", 3, "not a consumer", "Did you mean python"),
    ("version: 1\nmodels: [{path: models/bert.onnx}]\n", 2, "has no target", "targets"),
    (
        "version: 1\nmodels: [{path: models/bert.onnx}]\ntargets:\n  - {arch: gfx914, rocm: 7.2, migraphx: 2.15}\n",
        4,
        "gfx914 is not a known arch",
        "gfx9",
    ),
    ("version: 1\nmodels: [{path: models/bert.onnx}]\ntargets:\n  - {arch: mi100}\n", 4, "not a GPU arch", "gfx908"),
    (
        "version: 1\nmodels: [{path: models/bert.onnx}]\ntargets:\n  - {arch: gfx908, rocm: 7.2}\n",
        4,
        "no migraphx",
        "2.15",
    ),
    ("version: 1\nmodels: [{path: models/bert.onnx}]\ntargets:\n  - {kind: rfe}\n", 4, "not a kind", "ref"),
    ("version: 1\nmodels: [{path: models/bert.onnx}]\ntargets:\n  - {migraphx: two}\n", 4, "a version", "7.2"),
    (
        "version: 1\nmodels:\n  - path: models/bert.onnx\n    inputs: {x: [N, M]}\n" + TAIL,
        4,
        "several symbols, N and M",
        "sizes",
    ),
    ("version: 1\nmodels:\n  - path: models/bert.onnx\n    inputs: {x: [-1]}\n" + TAIL, 4, "not a dim", "1..8"),
    (
        "version: 1\nmodels:\n  - path: models/bert.onnx\n    inputs: {x: [N]}\n" + TAIL[11:],
        4,
        "N has no value",
        "batch",
    ),
    (
        "version: 1\nmodels:\n  - path: models/bert.onnx\n    env: {PATH: x}\n" + TAIL,
        4,
        "not an environment variable",
        "keys.md",
    ),
    (
        "version: 1\nmodels:\n  - path: models/bert.onnx\nprecision: int8\ndefaults: {calibration: x.npz}\n" + TAIL,
        5,
        "The calibration file x.npz does not exist",
        "relative",
    ),
    ("version: 1\nlimit: 1\nmodels: [{path: models/*.onnx}]\n" + TAIL, 1, "2 combinations", "--limit 2"),
    (
        "version: 1\nmodels: [{path: models/bert.onnx}]\nexclude: [{arch: gfx942}]\n" + TAIL,
        1,
        "nothing to compile",
        "exclude less",
    ),
    ("version: 1\nmodels: [}\n", 2, "not valid YAML", "indentation"),
    ("version: 1\nmodels: [{path: !!python/name:os.system models/bert.onnx}]\n", 2, "Tags", "Remove"),
    ("version: 1\n<<: {limit: 3}\n", 2, "Merge keys", "defaults"),
    ("version: 1\n? [a]\n: 1\n", 2, "plain text", "NAME"),
    ("version: 1\n---\nversion: 1\n", 2, "not valid YAML", "line"),
    ("", 1, "empty", "version: 1"),
    ("[" * 600, 1, "nested too deep", "nesting"),
]


@pytest.mark.parametrize(("text", "line", "fragment", "hint"), BAD, ids=[f"{row[2][:24]}" for row in BAD])
def test_every_error_names_its_line(folder: Path, text: str, line: int, fragment: str, hint: str) -> None:
    problem = error_of(folder, text)
    assert problem.context["line"] == line, problem.message
    assert fragment in problem.message and hint in problem.hint, (problem.message, problem.hint)


@pytest.mark.parametrize(
    ("arch", "precision", "word"),
    [("gfx908", "fp8", "fp8"), ("gfx1100", "fp8+fp16", "fp8"), ("gfx90a", "fp8", "fp8"), ("gfx1030", "bf16", "bf16")],
)
def test_a_precision_that_an_arch_does_not_support(folder: Path, arch: str, precision: str, word: str) -> None:
    """The error names the lines of the precision and the target, and an exclusion that resolves it."""
    text = (
        "version: 1\nmodels: [{path: models/bert.onnx}]\nbatch: 1\nprecision:\n  - fp32\n  - "
        f"{precision}\ntargets:\n  - {{arch: {arch}, rocm: 7.2, migraphx: 2.15}}\n"
    )
    problem = error_of(folder, text)
    assert problem.context["line"] == 6
    assert f"{word} does not run on {arch} (the target in line 8)" in problem.message
    exclusion = problem.hint[problem.hint.index("- {") :].rstrip(".")
    assert len(cells(folder, f"{text}exclude:\n  {exclusion}\n")) == 1


@pytest.mark.parametrize("arch", ["gfx940", "gfx942", "gfx950", "gfx1200", "gfx1201"])
def test_archs_that_run_fp8(arch: str) -> None:
    assert compile_support.impossible_precision(arch, "amd", ("fp8",)) is None
    assert compile_support.impossible_precision("gfx908", "hygon", ("fp8",)) is None
    assert compile_support.impossible_precision("gfx9-4-generic", "amd", ("fp8",)) is None


def test_versions_are_read_as_text(folder: Path) -> None:
    """YAML would read 2.10 as the number 2.1."""
    text = "version: 1\nmodels: [{path: models/bert.onnx}]\ntargets: [{kind: ref, migraphx: 2.10}]\n"
    assert [cell.options.migraphx for cell in cells(folder, text)] == ["2.10"]


def test_variables(folder: Path) -> None:
    """From the environment or the default. An empty variable counts as unset if there is a default. `$$` is `$`."""
    text = """version: 1
env_from: [ROCM, ARCH]
defaults: {rocm: "${ROCM:-7.2}", migraphx: "${MGX}", env: {MIGRAPHX_NSTREAMS: "$${x} $5"}}
models: [{path: "models/${NAME}.onnx", batch: "${BATCHES}"}]
targets: [{arch: "${ARCH:-gfx908}"}]
"""
    environ = {"MGX": "2.15", "NAME": "bert", "BATCHES": "1, 8", "ARCH": ""}
    found = cells(folder, text, environ)
    assert [cell.options.batch for cell in found] == [1, 8]
    assert found[0].target == "gfx908/rocm7.2/migraphx2.15"
    assert dict(found[0].options.env) == {"MIGRAPHX_NSTREAMS": "${x} $5"}


def test_the_nearest_section_wins(folder: Path) -> None:
    """The model overrides its target, and the target overrides the defaults. `env` is merged."""
    text = """version: 1
defaults:
  {tuning: exhaustive, precision: fp16, for: ort, rocm: "7.2", migraphx: "2.15",
   env: {MIGRAPHX_NSTREAMS: d, MIGRAPHX_ENABLE_CK: d}}
models:
  - path: models/resnet50.onnx
    tuning: default
    env: {MIGRAPHX_NSTREAMS: m}
    calibration: samples.npz
    precision: [int8, fp32]
    targets: [{kind: ref}]
  - path: models/bert.onnx
precision: bf16
targets:
  - {arch: gfx908, env: {MIGRAPHX_ENABLE_CK: t, MIGRAPHX_TUNE_CK: t}, allow: "cu,patch"}
include:
  - {path: models/bert.onnx, batch: 3, arch: gfx942, exact: true, runner: [self-hosted, big]}
"""
    int8, fp32, bert, extra = cells(folder, text)
    assert int8.options.calibration == folder / "samples.npz" and fp32.options.calibration is None
    assert int8.options.tuning == "default" and dict(int8.options.env) == {
        "MIGRAPHX_NSTREAMS": "m",
        "MIGRAPHX_ENABLE_CK": "d",
    }
    assert int8.options.kind == "ref" and int8.options.rocm is None
    assert bert.options.precision == "bf16" and bert.options.tuning == "exhaustive"
    assert dict(bert.options.env) == {"MIGRAPHX_NSTREAMS": "d", "MIGRAPHX_ENABLE_CK": "t", "MIGRAPHX_TUNE_CK": "t"}
    assert bert.options.allow == ("cu", "patch") and bert.options.consumer == "ort"
    assert (extra.options.precision, extra.options.batch, extra.options.exact) == ("fp16", 3, True)
    assert extra.runner == ("self-hosted", "big") and extra.line == 17


MODEL = "models: [{path: models/bert.onnx}]\n"
SECRETS = {"MXR_TOKEN": "hunter2", "DEPLOY_PASSWORD": "hunter2", "CI_REPOSITORY_URL": "hunter2", "MGX": "2.15"}


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        (MODEL + "defaults: {env: {MIGRAPHX_A: '${MXR_TOKEN}'}}\n", (), "this variable is not allowed"),
        (MODEL + "defaults: {env: {MIGRAPHX_A: '${MXR_TOKEN:-}'}}\n", ("MGX",), "this variable is not allowed"),
        ("models: [{path: 'models/${HOME:-bert}.onnx'}]\n", (), "this variable is not allowed"),
        (MODEL + "env_from: [MXR_TOKEN]\n", (), "MXR_TOKEN may be a secret"),
        (MODEL + "env_from: MGX, mxr_token_file\n", (), "mxr_token_file may be a secret"),
        (MODEL + "env_from: [DEPLOY_PASSWORD]\n", (), "DEPLOY_PASSWORD may be a secret"),
        (MODEL + "env_from: [CI_REPOSITORY_URL]\n", (), "CI_REPOSITORY_URL may be a secret"),
        (MODEL + "env_from: ['${MGX}']\n", ("MGX",), "lists names of variables"),
        (MODEL + "env_from: {MGX: 1}\n", (), "lists names of variables"),
        (MODEL + "env_from: [[MGX]]\n", (), "lists names of variables"),
    ],
)
def test_a_matrix_reads_no_variable_that_nobody_named(
    folder: Path, text: str, named: tuple[str, ...], message: str
) -> None:
    """It comes with a pull request, and its values end in keys that everyone can read."""
    path = folder / "m.yaml"
    path.write_text(f"version: 1\n{text}targets: [{{kind: ref, migraphx: '2.15'}}]\n")
    with pytest.raises(UsageError) as caught:
        matrix.cells(matrix.read_matrix(path, matrix.Variables(SECRETS, named)))
    assert message in caught.value.message and "hunter2" not in str(caught.value.to_json())


def test_the_command_line_allows_any_variable(folder: Path) -> None:
    path = folder / "m.yaml"
    path.write_text(
        f"version: 1\n{MODEL}targets: [{{kind: ref, migraphx: '${{MGX}}',"
        " env: {MIGRAPHX_DISABLE_PASSES: '${MXR_TOKEN}'}}]\n"
    )
    (cell,) = matrix.cells(matrix.read_matrix(path, matrix.Variables(SECRETS, ("MGX", "MXR_TOKEN"))))
    assert dict(cell.options.env) == {"MIGRAPHX_DISABLE_PASSES": "hunter2"} and cell.options.migraphx == "2.15"


OUTSIDE = (
    *("../id_rsa", "{home}/id_rsa", "../none", "models/../../id_rsa", "link.onnx", "folder/id_rsa"),
    *("../*", "{home}/*rsa", "f*/id_rsa", "*.onnx", "*/../../id_rsa", "**/id_rsa"),
)


@pytest.mark.parametrize("what", ["path", "calibration"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_matrix_names_no_file_outside_of_its_folder(tmp_path: Path, folder: Path, what: str, name: str) -> None:
    """Whether that file exists or not: `..`, absolute, by a symbolic link to a file or a folder, or by a glob."""
    inner = folder / "inner"
    (inner / "models").mkdir(parents=True)
    (inner / "models" / "bert.onnx").write_bytes(b"a model")
    (folder / "id_rsa").write_bytes(b"a secret")
    (inner / "link.onnx").symlink_to(folder / "id_rsa")
    (inner / "folder").symlink_to(folder)
    name = name.format(home=folder)
    if what == "calibration" and "*" in name:
        return
    rows = f"- {{path: '{name}'}}" if what == "path" else f"- {{path: models/bert.onnx, calibration: '{name}'}}"
    path = inner / "m.yaml"
    path.write_text(f"version: 1\nmodels:\n  {rows}\nprecision: int8\ntargets: [{{kind: ref, migraphx: '2.15'}}]\n")
    with pytest.raises(UsageError) as caught:
        matrix.cells(matrix.read_matrix(path, matrix.Variables({})))
    assert "is outside of the folder" in caught.value.message and caught.value.context["line"] == 3
    if "none" not in name:
        assert matrix.cells(matrix.read_matrix(path, matrix.Variables({}), outside=True))


def test_a_link_inside_the_folder_is_followed(folder: Path) -> None:
    (folder / "models" / "link.onnx").symlink_to("bert.onnx")
    (cell,) = cells(folder, "version: 1\nmodels: [{path: models/link.onnx}]\n" + TAIL)
    assert cell.model == folder / "models" / "link.onnx"


@pytest.mark.parametrize(
    ("inputs", "batch", "closed", "passed"),
    [
        ("{x: [N, 3]}", "8", (("x", (8, 3)),), 8),
        ("{x: [384, N]}", "8", (("x", (384, 8)),), None),
        ("{x: [4, 3]}", None, (("x", (4, 3)),), None),
        ("{x: 1..8@1/4, s: []}", "2", (("x", (target.DynamicDim(1, 8, (1, 4)),)), ("s", ())), None),
    ],
)
def test_shapes(folder: Path, inputs: str, batch: str | None, closed: Any, passed: int | None) -> None:
    """The batch replaces symbols. Inputs without a symbol do not use the common batch."""
    own = f", batch: {batch}" if batch else ""
    text = f"version: 1\nmodels: [{{path: models/bert.onnx, inputs: {inputs}{own}}}]\n{TAIL}"
    (found,) = cells(folder, text)
    assert (found.options.inputs, found.options.batch) == (closed, passed)


def test_a_list_of_shapes_and_a_model_without_batch(folder: Path) -> None:
    text = (
        "version: 1\nmodels:\n  - path: models/bert.onnx\n    inputs:\n      - {x: [N, 128]}\n      - {x: [N, 384]}\n"
        "    batch: [1, 8]\n  - {path: models/resnet50.onnx, batch: null}\n" + TAIL
    )
    found = cells(folder, text)
    assert [cell.options.inputs[0][1] for cell in found[:4]] == [(1, 128), (8, 128), (1, 384), (8, 384)]
    assert found[4].options.batch is None and not found[4].options.inputs


def test_duplicate_cells_are_removed(folder: Path) -> None:
    text = "version: 1\nmodels: [{path: models/bert.onnx}, {path: models/*.onnx}]\nprecision: [fp32, fp32]\n" + TAIL
    assert [cell.name for cell in cells(folder, text)] == ["models/bert.onnx", "models/resnet50.onnx"]


ARCHS = st.lists(st.sampled_from(["gfx908", "gfx90a", "gfx942", "gfx1100"]), min_size=1, max_size=4, unique=True)
PRECISIONS = st.lists(st.sampled_from(["fp32", "fp16", "int8", "int8+fp16"]), min_size=1, max_size=4, unique=True)
BATCHES = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)


@given(archs=ARCHS, precisions=PRECISIONS, batches=BATCHES, out=st.tuples(ARCHS, PRECISIONS))
def test_the_cells_are_the_product_without_excluded_cells(
    tmp_path_factory: pytest.TempPathFactory,
    archs: list[str],
    precisions: list[str],
    batches: list[int],
    out: tuple[list[str], list[str]],
) -> None:
    """Without duplicates, in file order, and the same in a second expansion."""
    folder = tmp_path_factory.getbasetemp()
    (folder / "m.onnx").write_bytes(b"a model")
    written = {
        "version": 1,
        "models": [{"path": "m.onnx"}],
        "batch": batches,
        "precision": precisions,
        "targets": [{"arch": arch, "rocm": "7.2", "migraphx": "2.15"} for arch in archs],
        "exclude": [{"arch": out[0], "precision": out[1]}],
    }
    wanted = [
        (arch, batch, precision)
        for arch, batch, precision in product(archs, batches, precisions)
        if not (arch in out[0] and precision in out[1])
    ]
    text = json.dumps(written)
    if not wanted:
        assert "nothing to compile" in error_of(folder, text).message
        return
    found = cells(folder, text)
    assert [(cell.options.arch, cell.options.batch, cell.options.precision) for cell in found] == wanted
    assert cells(folder, text) == found


PARTS = [
    "version: 1\n",
    "models:\n",
    "  - path: a\n",
    "batch: ",
    "[1, ",
    "{a: ",
    "]",
    "}",
    "&a ",
    "*a",
    "<<: ",
    "!!",
    "${",
]
PARTS += [
    "${A:-",
    "\t",
    "- ",
    ": ",
    "|\n",
    "'",
    '"',
    "%TAG",
    "---\n",
    "\0",
    "\ud800",
    "é",
    "targets",
    "null",
    "\n",
    "  ",
]


@given(st.one_of(st.binary(max_size=300), st.lists(st.sampled_from(PARTS), max_size=40).map("".join)))
def test_any_bytes_are_a_matrix_or_a_usage_error(data: bytes | str) -> None:
    """The error always names a line of the file."""
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    try:
        MATRIX.read(document.parse(raw, "m.yaml", matrix.Variables({"A": "1"}, ("A",))))
    except MxrError as problem:
        assert isinstance(problem, UsageError) and problem.hint
        assert problem.message.startswith(f"m.yaml:{problem.context['line']}: ")


def test_the_expansion_of_aliases_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few hundred bytes that expands to billions of parts. The real limits are tested under soak."""
    if os.environ.get("MXR_TEST_SOAK") != "1":
        monkeypatch.setattr(document, "MAX_NODES", 10_000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 9)]
    with pytest.raises(UsageError, match="parts \\(aliases expanded\\)"):
        document.parse("\n".join(lines).encode(), "m.yaml", matrix.Variables({}))
    with pytest.raises(UsageError, match="nested too deep"):
        document.parse(b"a: &a [*a]", "m.yaml", matrix.Variables({}))
    with pytest.raises(UsageError, match="characters"):
        document.parse(b"a: [" + b"'${X}'," * 5000 + b"]", "m.yaml", matrix.Variables({"X": "x" * 1000}, ("X",)))
    with pytest.raises(UsageError, match="at most"):
        document.parse(b"#" * (1 << 20) + b"\n", "m.yaml", matrix.Variables({}))


def test_more_combinations_than_the_default_limit(folder: Path) -> None:
    """An error that names the number; a higher limit accepts them."""
    count = 10_000 if os.environ.get("MXR_TEST_SOAK") == "1" else matrix.LIMIT + 2
    text = (
        "version: 1\nmodels: [{path: models/bert.onnx}]\nprecision: [fp32, fp16]\n"
        f"batch: {list(range(1, count // 2 + 1))}\ntargets: [{{kind: ref, migraphx: '2.15'}}]\n"
    )
    assert f"--limit {count}" in error_of(folder, text).hint
    assert len(cells(folder, text, limit=count)) == count
    assert len(cells(folder, text + f"limit: {count}\n")) == count


def fits(schema: Any, value: Any) -> bool:
    """Whether a value matches a schema. Supports only the keywords that the generated schema uses."""
    import re

    known = {"anyOf", "type", "enum", "pattern", "minimum", "maximum", "items", "minItems", "properties"}
    known |= {"required", "additionalProperties", "propertyNames", "description", "$schema", "title"}
    assert set(schema) <= known, set(schema) - known
    if "anyOf" in schema:
        return any(fits(each, value) for each in schema["anyOf"])
    if "enum" in schema and value not in schema["enum"]:
        return False
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    found = names.get(type(value), "null")
    if types and found not in types and not (found == "integer" and "number" in types):
        return False
    if found == "string" and "pattern" in schema and not re.search(schema["pattern"], value):
        return False
    if found == "integer" and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return False
    if found == "array":
        return len(value) >= schema.get("minItems", 0) and all(fits(schema.get("items", {}), each) for each in value)
    return found != "object" or fits_object(schema, value)


def fits_object(schema: Any, value: dict[str, Any]) -> bool:
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not set(schema.get("required", ())) <= set(value):
        return False
    return all(
        fits(properties[name], each) if name in properties else rest is True or (rest is not False and fits(rest, each))
        for name, each in value.items()
    )


def test_the_schema_accepts_what_the_reader_accepts(folder: Path) -> None:
    """For the matrix of the documentation and for variants of one field. The schema file in docs/ is up to date."""
    import yaml

    schema = matrix.schema()
    assert fits(schema, yaml.safe_load(CONTRACT))
    base = yaml.safe_load(CONTRACT)
    good = [
        {"batch": 4},
        {"batch": "1,8"},
        {"batch": "${B:-1}", "env_from": ["B"]},
        {"for": "ort"},
        {"limit": 30},
        {"precision": "int8+fp16"},
    ]
    bad = [
        {"batch": 0},
        {"batch": []},
        {"modles": []},
        {"version": 2},
        {"for": "nobody"},
        {"precision": "fp17"},
        {"limit": True},
    ]
    for change in (*good, *bad):
        assert fits(schema, base | change) == (change in good), change
        try:
            cells(folder, json.dumps(base | change))
        except UsageError:
            assert change in bad, change
        else:
            assert change in good, change
    written = json.loads((DOCS / "matrix.schema.json").read_text())
    assert written == schema, "update docs/matrix.schema.json with the output of `mxr precompile --schema`"


def test_every_field_has_a_description() -> None:
    """Editors show it."""
    for name, row in MATRIX.schema["properties"].items():
        assert row["description"].endswith("."), name
    assert {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"} <= fields.ARCHS
