"""The facts of a request, one row each.

From these rows come the options of the command, the arguments of `mxr.fetch`, request defaults, the columns of a
matrix, the parameters of an `mxr://` URI, descriptions in the API's document, and the words for a fact in a message. A
new fact is a row here, a field of `mxr.RequestOptions` and of `mxr.OptionArguments`, and the code that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import NamedTuple

from mxr.display.text import shell_quoted

TEXT, COUNT, SIZES, PATH, VERSION = "text", "count", "sizes", "path", "version"
FLAG, SWITCH = "flag", "switch"
"""A flag is on, off or not stated; a switch is on or off."""

NAMES, SHAPES, LIST = "names", "shapes", "list"
"""Names with values, which a command repeats; the dims of inputs by name; several words."""

KEY, CONSTRAINT, RULE, INPUT = "key", "constraint", "rule", "input"
"""Where a fact ends: in the key, as a constraint on attributes, as a rule of matching, or in how a key is made."""

OPEN, USUAL, DEFAULT = "open", "usual", "default"
"""A request can leave it open; help shows it first; projects, users and namespaces can set a default."""

HARDWARE, AXIS, OPTION, SHAPE = "hardware", "axis", "option", "shape"
"""The part of a matrix that states it."""

URI, URI_IF_ALLOWED = "uri", "uri-if-allowed"
"""A URI of KServe can state it: always, or where the operator allows it."""


class Fact(NamedTuple):
    """One fact of a request.

    `traits`: words for what holds for it: OPEN, USUAL, DEFAULT, the part of a matrix, URI. `metavar`: its value in a
    usage line. `about`: a sentence for help and documents. `option`: the word on a command line and in a URI, where it
    is not the name. `choices`: its values, where there are few.
    """

    name: str
    kind: str
    place: str
    traits: str
    metavar: str
    about: str
    option: str = ""
    choices: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """Its name on a command line, without dashes."""
        return self.option or self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """Its option: `--num-cu`."""
        return f"--{self.word}"

    def has(self, *traits: str) -> bool:
        """Return whether it has one of these traits."""
        return not set(traits).isdisjoint(self.traits.split())


VENDORS = ("amd", "hygon")
KINDS = ("gpu", "ref")
TUNINGS = ("cross", "eager", "default", "exhaustive")
"""From the least to the most tuned.

`eager`: MIGraphX's compile_mode 0, without most optimizations and without timing kernels. It is said to compile up to
ten times faster and to make programs that run 20 to 50 % slower. Source: ROCm/AMDMIGraphX pull 4770 (2026-04).
"""

ALLOWANCES = ("cu", "patch", "rocm", "cross", "eager", "spoof", "shape")

# fmt: off
FACTS = (
    Fact("arch", TEXT, KEY, "open usual hardware uri", "ARCH",
         "GPU architecture, such as gfx908 or gfx90a:sramecc+:xnack-."),
    Fact("vendor", TEXT, KEY, "hardware uri", "NAME",
         "GPU vendor: amd (default) or hygon.", choices=VENDORS),
    Fact("kind", TEXT, KEY, "usual hardware uri", "KIND",
         "Target: gpu (default), or ref, the CPU reference target of MIGraphX.", choices=KINDS),
    Fact("num_cu", COUNT, CONSTRAINT, "hardware uri", "N",
         "Number of compute units, as MIGraphX counts them."),
    Fact("chiplets", COUNT, CONSTRAINT, "hardware uri", "N",
         "Number of chiplets (XCCs) of the GPU, as MIGraphX counts them."),
    Fact("real_arch", TEXT, CONSTRAINT, "uri", "ARCH",
         "Actual architecture of the GPU when HSA_OVERRIDE_GFX_VERSION is set."),
    Fact("rocm", VERSION, KEY, "open usual default hardware uri", "VERSION",
         "Version of ROCm (or DTK), such as 7.2 or 7.2.1."),
    Fact("migraphx", VERSION, KEY, "open usual default hardware uri", "VERSION",
         "Version of MIGraphX, such as 2.15 or 2.15.0."),
    Fact("batch", SIZES, INPUT, "open usual default axis uri", "N",
         "Size of the open first dimension of every input."),
    Fact("inputs", SHAPES, KEY, "open usual default shape uri", "NAME=DIMS",
         "Shape of an input, such as x=1,3,224,224, or with a dynamic dimension x=1..8@1/4/8,3.", "input"),
    Fact("precision", TEXT, KEY, "usual axis uri", "P",
         "fp32 (default), or fp16, bf16, int8, fp8, int4w joined with + in the order in which they are applied."),
    Fact("calibration", PATH, KEY, "option", "FILE",
         "Calibration data for int8 or fp8: an .npz with an array of samples for each input."),
    Fact("offload_copy", FLAG, KEY, "open option uri", "",
         "The program copies its inputs and outputs between host and GPU itself."),
    Fact("fast_math", FLAG, KEY, "open option uri", "",
         "The program uses fast math."),
    Fact("env", NAMES, KEY, "option uri-if-allowed", "NAME=VALUE",
         "A MIGRAPHX_* environment variable that the compile sees."),
    Fact("options", NAMES, KEY, "option", "NAME=VALUE",
         "An option of MIGraphX's GPU backend, such as convolution_layout=channels_last.", "option"),
    Fact("tuning", TEXT, CONSTRAINT, "option uri", "TUNING",
         "default, exhaustive, eager (compiles fast, runs slowly), or cross (compiled without the GPU).",
         choices=TUNINGS),
    Fact("consumer", TEXT, INPUT, "usual default axis uri", "CONSUMER",
         "The program that loads the file: python, triton, ... (see mxr consumers).", "for"),
    Fact("exact", SWITCH, RULE, "option uri", "",
         "Accept only artifacts that match every given attribute exactly."),
    Fact("allow", LIST, RULE, "option uri", "LIST",
         f"Differences to accept: {', '.join(ALLOWANCES)}, separated by commas.", choices=ALLOWANCES),
    Fact("follow_links", SWITCH, RULE, "", "",
         "Follow external data that is a symbolic link, also outside a Hugging Face cache."),
)
# fmt: on

BY_NAME: Mapping[str, Fact] = {fact.name: fact for fact in FACTS}

COMMAND, PYTHON, HTTP = "command", "python", "http"
"""How the user of a program states facts: by options, by arguments of the library, or by fields of the API."""

dialect: ContextVar[str] = ContextVar("dialect", default=COMMAND)

SETTINGS = ("registry", "host_file", "cache_dir", "plaintext")
"""Settings that messages name."""

CONSUMER_OPTIONS = ("ort", "ort_cache")
"""Options of one consumer that messages name."""


def names(*traits: str) -> tuple[str, ...]:
    """Return the names of the facts that have one of these traits."""
    return tuple(fact.name for fact in FACTS if fact.has(*traits))


def command_words(name: str, value: object) -> list[tuple[str, ...]]:
    """Return the options that state a value, each with its words; none for a value that is not stated."""
    fact = BY_NAME[name]
    if value is None or (fact.kind == SWITCH and not value):
        return []
    if isinstance(value, bool):
        return [(fact.flag if value else f"--no-{fact.word}",)]
    if isinstance(value, Mapping):
        return [(fact.flag, f"{key}={each}") for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [(fact.flag, ",".join(map(str, value)))] if value else []
    return [(fact.flag, str(value))]


def stated(name: str, value: object = None) -> str:
    """Return how the user of this program states a fact, or what else messages name: `--num-cu 8`, `num_cu=8`.

    Without a value, only its name. A value of a fact with names is written `NAME=VALUE`.
    """
    spoken, fact = dialect.get(), BY_NAME.get(name)
    if spoken == PYTHON:
        return _in_python(name, fact, value)
    switched = isinstance(value, bool)
    if spoken == HTTP:
        return ("no " if value is False else "") + name + ("" if value is None or switched else f" {value}")
    word = fact.word if fact else {"host_file": "host"}.get(name, name.replace("_", "-"))
    said = "" if value is None or switched else f" {shell_quoted(str(value))}"
    return f"--{'no-' if value is False else ''}{word}{said}"


def all_stated(values: Iterable[tuple[str, object]]) -> str:
    """Return how the user of this program states several facts, one after the other."""
    return (" " if dialect.get() == COMMAND else ", ").join(stated(name, value) for name, value in values)


def _in_python(name: str, fact: Fact | None, value: object) -> str:
    if name in SETTINGS:
        given = "True" if name == "plaintext" else "..." if value is None else f'"{value}"'
        return f"settings=Settings({name}={given})"
    if name in CONSUMER_OPTIONS:
        return f'consumer_options["{name}"]' if value is None else f'consumer_options={{"{name}": "{value}"}}'
    if fact is None or fact.kind in (FLAG, SWITCH):
        return name if value is None and fact is not None and fact.kind == FLAG else f"{name}={value is not False}"
    if value is None:
        return name
    if fact.kind in (NAMES, SHAPES):
        key, _, rest = str(value).partition("=")
        shown = f"[{rest.replace(',', ', ')}]" if fact.kind == SHAPES else f'"{rest}"'
        return f'{name}={{"{key}": {shown}}}'
    if fact.kind == LIST:
        return f"{name}=[" + ", ".join(f'"{each}"' for each in str(value).split(",")) + "]"
    return f"{name}={value}" if fact.kind in (COUNT, SIZES) else f'{name}="{value}"'
