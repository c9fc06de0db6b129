"""Values of a service from options, environment and file; whatever is wrong is named with its place, and no secret."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness.rows import for_each

from mxr.configuration.printing import reference_table, sample_file, toml_value, values_document, values_lines
from mxr.configuration.reading import HiddenValueError, ServiceValues, assignments, line_of, read_service
from mxr.configuration.schema import BYTES, SECONDS, VARIABLES, ServiceSchema, setting
from mxr.errors import UsageError

SECRET = "hunter2hunter2"


def no_users(url: str) -> str:
    """Refuses a URL with a user."""
    if "@" in url:
        raise HiddenValueError("it has a user")
    return url.rstrip("/")


@dataclass(frozen=True, slots=True)
class Kitchen:
    """Where things are cooked.

    More about it.
    """

    ovens: int = setting(2, "How many ovens there are.", least=1, most=1000)
    pause: float = setting(60.0, "Between two dishes.", unit=SECONDS, least=0.05, most=86_400)
    size: int = setting(2**20, "Of the larder.", unit=BYTES, least=1, option="--size")
    gas: bool = setting(False, "Cook with gas.")
    fuel: str | None = setting(None, "What is burnt.", choices=("gas", "wood"), absent="nothing", example='"wood"')
    spices: tuple[str, ...] = setting((), "What there is.")
    folder: Path | None = setting(None, "Of the recipes.", absent="none", example='"/recipes"')


@dataclass(frozen=True, slots=True)
class Door:
    """The way in."""

    url: str | None = setting(None, "Where it leads.", check=no_users, absent="nowhere", example='"http://out"')
    key: str | None = setting(None, "Of the lock.", secret=True, absent="it is open", example='"secret"')
    port: int = setting(1, "Its number.", least=0, most=65_535)


SCHEMA = ServiceSchema("cook", "MXR_COOK_CONFIG", {"kitchen": Kitchen, "door": Door}, {"pots": "[[pots]]\nsize = 1"})


def read(
    file: Path | None = None, environ: dict[str, str] | None = None, options: dict[str, Any] | None = None
) -> ServiceValues:
    return read_service(SCHEMA, environ or {}, options, file)


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """Writes the configuration file."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "cook.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def problem(values: ServiceValues) -> UsageError:
    """The only problem."""
    (found,) = values.problems
    with pytest.raises(UsageError):
        values.table("kitchen")
    return found


def test_nothing_said_is_the_default() -> None:
    values = read()
    assert values.table("kitchen") == Kitchen() and values.table("door") == Door()
    assert {each.source for each in values.found.values()} == {"default"}
    assert not values.problems


def test_options_override_variables_and_these_the_file(config: Any) -> None:
    path = config('[kitchen]\novens = 3\npause = "2h"\nsize = "64MiB"\n\n[door]\nport = 7\n[[pots]]\nsize = 1\n')
    environ = {"MXR_COOK_CONFIG": str(path), "MXR_KITCHEN_OVENS": "4", "MXR_KITCHEN_PAUSE": "90s"}
    values = read(environ=environ, options={"kitchen.ovens": "5", "kitchen.gas": None, "kitchen.spices": ()})
    assert values.table("kitchen") == Kitchen(ovens=5, pause=90.0, size=64 << 20)
    assert values.lists == {"pots": [{"size": 1}]}
    sources = {name: found.source for name, found in values.found.items() if found.source != "default"}
    assert sources == {
        "kitchen.ovens": "--set kitchen.ovens",
        "kitchen.pause": "MXR_KITCHEN_PAUSE",
        "kitchen.size": f"{path}:4",
        "door.port": f"{path}:7",
    }


@for_each(
    [
        ("MXR_KITCHEN_GAS", "on", True),
        ("MXR_KITCHEN_GAS", "False", False),
        ("MXR_KITCHEN_SPICES", "salt, pepper  mint", ("salt", "pepper", "mint")),
        ("MXR_KITCHEN_SIZE", "1.5KiB", 1536),
        ("MXR_KITCHEN_PAUSE", "0.5", 0.5),
        ("MXR_KITCHEN_PAUSE", "1d", 86_400.0),
        ("MXR_KITCHEN_FUEL", "wood", "wood"),
        ("MXR_KITCHEN_FOLDER", "/r", Path("/r")),
        ("MXR_DOOR_URL", "http://x/", "http://x"),
        ("MXR_KITCHEN_OVENS", "", 2),
    ]
)
def test_texts_of_variables(variable: str, text: str, value: object) -> None:
    values = read(environ={variable: text})
    path = variable.removeprefix("MXR_").lower().replace("_", ".", 1)
    assert values.value(path) == value and type(values.value(path)) is type(value) and not values.problems


WRONG = [
    ("ovens", 0),
    ("ovens", -1),
    ("ovens", 1001),
    ("ovens", 10**30),
    ("ovens", 1.5),
    ("ovens", True),
    ("ovens", "many"),
    ("ovens", "2s"),
    ("pause", -1),
    ("pause", 0),
    ("pause", 1e30),
    ("pause", float("nan")),
    ("pause", float("inf")),
    ("pause", "5min"),
    ("pause", "2 parsecs"),
    ("pause", "8MiB"),
    ("size", "8MB"),
    ("size", "8mib"),
    ("size", "90s"),
    ("size", "1.0000001KiB"),
    ("size", "-1"),
    ("gas", "on"),
    ("gas", 1),
    ("fuel", "coal"),
    ("fuel", ""),
    ("fuel", "wo\nod"),
    ("spices", "salt"),
    ("spices", [1]),
    ("folder", 1),
    ("folder", [[[]]]),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_what_makes_no_sense_is_named_with_its_line(config: Any, name: str, value: object) -> None:
    text = str(value) if isinstance(value, float) else toml_value(value)
    path = config(f"# kitchen\n[kitchen]\n# {name} = 1\n{name} = {text}\n")
    found = problem(read(path))
    assert found.message.startswith(f"{path}:4: kitchen.{name}: expected "), found.message
    assert len(found.message) < 400 and "cook config sample" in found.hint


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MXR_KITCHEN_OVENS", "9" * 5000),
        ("MXR_KITCHEN_GAS", "perhaps"),
        ("MXR_KITCHEN_PAUSE", "１s"),
        ("MXR_DOOR_PORT", "x"),
    ],
)
def test_a_variable_that_makes_no_sense(variable: str, text: str) -> None:
    found = problem(read(environ={variable: text}))
    assert found.message.startswith(f"{variable}: expected ") and len(found.message) < 200


def test_an_option_that_makes_no_sense() -> None:
    assert problem(read(options={"kitchen.size": "x"})).message.startswith("--size: expected ")


def test_everything_that_is_wrong_is_found(config: Any) -> None:
    path = config("[kitchen]\novens = 0\nsalt = 1\n[kitchn]\novens = 1\n[door]\nport = -1\n")
    values = read(path, {"MXR_KITCHEN_PAUSE": "x", "MXR_DOR_URL": "x"})
    messages = sorted(each.message.replace(str(path), "F") for each in values.problems)
    assert [each.partition(": ")[0] for each in messages] == [
        "F:2",
        "F:3",
        "F:4",
        "F:7",
        "MXR_DOR_URL is no setting of cook.",
        "MXR_KITCHEN_PAUSE",
    ]


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("[kitchen]\novns = 1\n", ":2: unknown setting 'ovns' in [kitchen]", "Did you mean ovens?"),
        ("[kichen]\novens = 1\n", ":1: unknown table or setting 'kichen'", "Did you mean kitchen?"),
        ("\novens = 1\n", ":2: unknown table or setting 'ovens'", "Did you mean kitchen.ovens?"),
        ("kitchen = 1\n", ":1: kitchen must be a table", "Write [kitchen]."),
        ("[pots]\nsize = 1\n", ":1: pots must be a list of tables", "Write [[pots]]."),
        ("[door]\n[kitchen.oven]\nx = 1\n", ":2: unknown setting 'oven' in [kitchen]", "Did you mean ovens?"),
    ],
)
def test_unknown_names(config: Any, text: str, place: str, hint: str) -> None:
    path = config(text)
    found = problem(read(path))
    assert found.message == f"{path}{place}." and hint in found.hint


def test_variables_of_others_are_no_business_of_a_service() -> None:
    links = {
        "MXR_PORT": "tcp://10.0.0.1:8765",
        "MXR_SERVICE_HOST": "10.0.0.1",
        "MXR_SERVICE_PORT": "8765",
        "MXR_SERVICE_PORT_HTTP": "8765",
        "MXR_REGISTRY_PORT": "tcp://10.0.0.1:8765",
        "MXR_REGISTRY_PORT_8765_TCP": "tcp://10.0.0.1:8765",
        "MXR_REGISTRY_PORT_8765_TCP_ADDR": "10.0.0.1",
        "MXR_REGISTRY_PORT_8765_TCP_PORT": "8765",
        "MXR_REGISTRY_PORT_8765_TCP_PROTO": "tcp",
        # A service of Kubernetes with the name mxr-door.
        "MXR_DOOR_PORT": "tcp://10.0.0.1:80",
    }
    clients = dict.fromkeys(VARIABLES.values(), "x")
    values = read(environ={**links, **clients, "PATH": "/bin", "MXR_TEST_SOAK": "1"})
    assert not values.problems and values.table("door") == Door()


@pytest.mark.parametrize("name", ["MXR_KITCHEN_OVEN", "MXR_KICHEN_OVENS", "MXR_COOK_CONFG", "MXR_DOOR_SECRET"])
def test_a_variable_with_a_typo_is_named_without_its_value(name: str) -> None:
    found = problem(read(environ={name: SECRET}))
    assert name in found.message and SECRET not in found.message + found.hint
    assert "Did you mean MXR_" in found.hint or name == "MXR_DOOR_SECRET"


def test_a_variable_of_somebody_else_is_a_note() -> None:
    values = read(environ={"MXR_WHEEL": SECRET, "MXR_": SECRET})
    assert not values.problems and values.table("door") == Door()
    assert values.notes == ("MXR_ is set, and is no setting of cook", "MXR_WHEEL is set, and is no setting of cook")


def test_no_error_and_no_list_has_a_secret(config: Any) -> None:
    path = config(f'[door]\nkey = "{SECRET}"\n')
    values = read(path)
    document = values_document(values, {})
    shown = repr(values) + repr(values.table("door")) + str(document) + str(values_lines(document))
    shown += sample_file(SCHEMA)
    assert values.table("door").key == SECRET and SECRET not in shown
    assert document["settings"]["door.key"] == {"value": "set, not shown", "from": f"{path}:2"}

    errors = []
    for text in (
        f'[door]\nkey = ["{SECRET}"]\n',
        f'[door]\nurl = "http://me:{SECRET}@out"\n',
        f'[door]\npassword = "{SECRET}"\n',
        f'[kitchen]\nkey = "{SECRET}"\n',
        f'password = "{SECRET}"\n',
        f'[secrets]\npassword = "{SECRET}"\n',
    ):
        errors += [*read(config(text)).problems]
    errors += [*read(environ={"MXR_DOOR_URL": f"http://me:{SECRET}@out", "MXR_DOOR_PASSWORD": SECRET}).problems]
    assert len(errors) == 8 and SECRET not in str([each.to_json() for each in errors])
    with pytest.raises(UsageError, match="other users can read the command line") as caught:
        assignments(SCHEMA, [f"door.key={SECRET}"])
    assert SECRET not in str(caught.value.to_json()) and "MXR_DOOR_KEY" in caught.value.hint


def test_assignments_of_the_command_line() -> None:
    assert assignments(SCHEMA, ["kitchen.ovens=3", "door.url=http://a=b"]) == {
        "kitchen.ovens": "3",
        "door.url": "http://a=b",
    }
    for word, part in (("kitchen.ovens", "no value"), ("kitchen.oven=3", "no setting"), ("=", "no setting")):
        with pytest.raises(UsageError, match=part):
            assignments(SCHEMA, [word])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"[kitchen\n", "line 1, column 9"),
        (b"[kitchen]\novens = \n", "line 2, column 9"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[kitchen]\novens = 1\novens = 2\n", "line 3"),
        (b"# " + b"x" * (1 << 20), "larger than"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "not valid TOML"),
    ],
)
def test_a_file_that_is_none(config: Any, text: bytes, part: str) -> None:
    path = config(text)
    with pytest.raises(UsageError, match=part) as caught:
        read(path)
    assert str(path) in caught.value.message and len(caught.value.message) < 400


def test_a_huge_file_is_not_read(config: Any) -> None:
    path = config("")
    os.truncate(path, 100 << 20)
    with pytest.raises(UsageError, match="larger than"):
        read(path)


def test_files_that_are_fine(config: Any, tmp_path: Path) -> None:
    assert read(config("")).table("kitchen") == Kitchen()
    path = config("[kitchen]\novens = 9\n")
    (tmp_path / "link.toml").symlink_to(path)
    assert read(tmp_path / "link.toml").value("kitchen.ovens") == 9


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(UsageError, match="There is no configuration file") as caught:
            read(path)
        assert "cook config sample" in caught.value.hint
    with pytest.raises(UsageError, match="There is no configuration file"):
        read(environ={"MXR_COOK_CONFIG": str(tmp_path / "none.toml")})


def test_a_file_that_others_can_write_is_not_used(config: Any) -> None:
    path = config(f'[door]\nkey = "{SECRET}"\n')
    path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWOTH)
    with pytest.raises(UsageError, match="other users can write it") as caught:
        read(path)
    assert SECRET not in str(caught.value.to_json())


def test_the_line_of_a_setting() -> None:
    text = '[a]\nx = 1\n[b.c]\nx = 2\n[b]\n"x" = 3\ny.z = 1\n[[c]]\nx = 1\n'
    assert [
        line_of(text, *each) for each in (("a", "x"), ("b", "x"), ("b", "y"), ("", "a"), ("", "c"), ("a", "y"))
    ] == [
        2,
        6,
        7,
        1,
        8,
        None,
    ]
    assert line_of("a.x = 1\n", "a", "x") == line_of("a = {x = 1}\n", "a", "x") == 1


def test_the_sample_has_every_setting_with_its_default(config: Any) -> None:
    text = sample_file(SCHEMA)
    values = read(config(text))
    assert not values.problems and {each.source for each in values.found.values()} == {"default"}
    active = "\n".join(line.removeprefix("#") if " = " in line or "[[" in line else line for line in text.splitlines())
    values = read(config(active))
    assert not values.problems and values.lists == {"pots": [{"size": 1}]}
    for each in SCHEMA.settings:
        assert each.variable in text and each.facts.about.split()[0] in text
        assert values.found[each.path].source != "default"
        assert each.default is None or values.value(each.path) == each.default
    assert max(map(len, text.splitlines())) <= 110


def test_the_table_of_the_reference() -> None:
    rows = reference_table(SCHEMA, "kitchen").splitlines()
    assert rows[2] == "| `ovens` | `2` | `MXR_KITCHEN_OVENS` | How many ovens there are. A number, 1 to 1000. |"
    assert rows[4] == "| `size` | `1048576` | `MXR_KITCHEN_SIZE`, `--size` | Of the larder. Bytes, 1 or more. |"
    assert rows[6] == "| `fuel` | none: nothing | `MXR_KITCHEN_FUEL` | What is burnt. One of `gas`, `wood`. |"
