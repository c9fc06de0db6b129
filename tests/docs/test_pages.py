"""The pages of the repository: links and paths lead somewhere, prose is wrapped, and no command installs from an index.

`docs/README.md` and the index in `docs/architecture.md` are checked in more detail.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from harness.rows import for_each
from paths import ROOT

FOLDERS = ("docs", "deploy", "examples", "bench", "tests", "core", "registry", "cli", "compiler_workers", "migrations")
IGNORED = tuple(line.lstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/"))
PAGES = sorted(
    page
    for folder in ("", *FOLDERS)
    for page in (ROOT / folder).glob("**/*.md" if folder else "*.md")
    if not str(page.relative_to(ROOT)).startswith(IGNORED)
)
INSTALLERS = [
    *PAGES,
    *(path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file() and path.suffix != ".md"),
]

WIDTH = 120
UNBREAKABLE = 80
READERS = 8
MAX_PAGES = 3

FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*|[A-Z]+\.md|Makefile|pyproject\.toml|constraints\.txt)`")
NAME_IN_FILE = re.compile(r"`(\w+)`\s+in\s+`([\w./]+\.py)`")
INDEX_INSTALL = re.compile(r"pip3? install\b[^\n`#;&]*?(?<![\w/.-])mxr(?:[-_]cache)?(?![\w.-])")

COINED = (
    "the way of a",
    "what goes again",
    "vendor door",
    "lifecycle rule expire objects",
    "is it well",
    "stands aside",
    "storage initialiser",
    "in spite of failures",
    "combinations bear",
    "point out compiles",
    "nobody to ask",
    "on your word",
    "is told by",
    "may work later",
    "let this registry in",
    "the house is kept",
    "of the house",
    "bad days",
    "whoever",
    "in vain",
)
"""Coined or archaic expressions that the pages must not contain, in lower case."""

page = for_each(PAGES)


def without_code(text: str) -> str:
    """The text of a page with the lines of fenced code blocks empty, so that line numbers stay."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def prose_lines(text: str) -> list[tuple[int, str]]:
    """The numbered lines of a page that are neither code nor part of a table."""
    lines = enumerate(without_code(text).split("\n"), 1)
    return [(number, line) for number, line in lines if not line.lstrip().startswith("|") and line[:4] != "    "]


def too_long(line: str) -> bool:
    """Whether a line is too long, and not because of one unbreakable word such as a link."""
    return len(line) > WIDTH and max(map(len, line.split())) < UNBREAKABLE


@page
def test_every_relative_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for link in LINK.findall(without_code(path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@page
def test_every_repository_path_exists(path: Path) -> None:
    # A source is often a path in another repository.
    text = re.sub(r"^Sources?:.*?(?:\n\n|\Z)", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for name in PATH.findall(text):
        if "NAME" not in name:
            assert (ROOT / name).exists(), name
            # It would be missing in a fresh clone.
            assert not name.startswith(IGNORED), name


@page
def test_prose_is_wrapped(path: Path) -> None:
    long = [f"{number}: {line}" for number, line in prose_lines(path.read_text()) if too_long(line)]
    assert not long, "\n".join(long)


@page
def test_no_coined_terms(path: Path) -> None:
    text = re.sub(r"\s+", " ", without_code(path.read_text()).lower())
    found = [term for term in COINED if term in text]
    assert not found


@for_each(INSTALLERS)
def test_nothing_is_installed_from_an_index(path: Path) -> None:
    """Nothing is published, and `mxr` on the public index belongs to another project."""
    found = INDEX_INSTALL.findall(path.read_text())
    assert not found


@page
def test_every_name_is_defined_in_the_file_that_the_page_gives(path: Path) -> None:
    for name, file in NAME_IN_FILE.findall(path.read_text()):
        source = ROOT / file if (ROOT / file).exists() else next(ROOT.glob(f"*/*/{file}"), None)
        assert source is not None, file
        assert name in defined_names(source), f"{name} in {file}"


@functools.cache
def defined_names(source: Path) -> set[str]:
    """The functions, classes, methods and constants that a Python file defines."""
    tree = ast.parse(source.read_text())
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_readme_compares_with_what_was_measured() -> None:
    """Its rows are those of `make bench`: write them anew when the table changes."""
    readme, bench = (
        [line.strip("| ").split(" | ") for line in (ROOT / name).read_text().splitlines() if line.startswith("| ")]
        for name in ("README.md", "bench/README.md")
    )
    shown = [row for row in readme if row[1].endswith(" s")]
    rows = [(row[2], row[3], row[1]) for row in bench if row[0] == "fetch 512 MiB from S3, verified and synced"]
    assert {tuple(row) for row in shown} <= set(rows) and len(shown) == 3
    (warm,) = (row[1] for row in bench if row[0] == "fetch 512 MiB from the cache")
    assert any(f"then {warm} from the cache" in row[-1] for row in readme)


def test_each_reader_gets_at_most_three_pages() -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / "README.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(sections) == READERS
    for section in sections:
        links = LINK.findall(section)
        assert 1 <= len(links) <= MAX_PAGES, section
        assert len(re.findall(r"^\d\. \[", section, re.MULTILINE)) == len(links), section


def test_the_index_answers_the_usual_questions() -> None:
    """A reader finds these in one step."""
    index = (ROOT / "docs" / "architecture.md").read_text().partition("## Where is what")[2].partition("\n## ")[0]
    for words, file in (
        ("digest of a key", "core/mxr/artifact/key.py"),
        ("chosen among several", "core/mxr/artifact/matching.py"),
        ("lease", "registry/mxr_registry/jobs/leases.py"),
        ("layout for Triton", "core/mxr/consumers/triton.py"),
        ("insufficient bytes", "core/mxr/known_failures/migraphx_files.toml"),
    ):
        assert any(words in row and f"`{file}`" in row for row in index.splitlines()), words
    assert "insufficient bytes" in (ROOT / "core/mxr/known_failures/migraphx_files.toml").read_text()


def test_glossary_terms_are_sorted_and_short() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    entries = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    terms = [entry.partition("\n")[0] for entry in entries]
    assert terms == sorted(terms, key=str.lower) and len(set(terms)) == len(terms)
    for entry in entries:
        body = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "x", entry.partition("\n")[2])
        assert 1 <= len(re.findall(r"[.:](?=\s|$)", body)) <= 4, entry


@pytest.mark.parametrize(
    "command",
    ["pip install mxr", "pip install 'mxr[registry]'", "pip install --upgrade mxr-cache", "python -m pip install mxr"],
)
def test_an_install_from_an_index_would_be_found(command: str) -> None:
    assert INDEX_INSTALL.search(command)


@pytest.mark.parametrize(
    "command",
    [
        "pip install .",
        "pip install '.[registry]'",
        "pip install 'dist/mxr_cache-0.1.0-py3-none-any.whl[registry]'",
        "git clone X mxr && cd mxr && pip install .",
    ],
)
def test_an_install_from_a_file_is_accepted(command: str) -> None:
    assert not INDEX_INSTALL.search(command)


def test_a_long_line_would_be_found() -> None:
    assert too_long("word " * 30)
    assert not too_long("- [text](" + "x" * WIDTH + ")")
