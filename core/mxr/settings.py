"""Client settings: one frozen value, built once from flags, environment variables and the user's configuration file.

The tokens that `mxr login` has stored:
$XDG_CONFIG_HOME/mxr/tokens.json    {"https://registry.example.com": "mxr_..."}, mode 0600
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import mxr.facts as facts
from mxr.configuration.config_file import (
    NOWHERE,
    ConfigFile,
    UntrustedFileError,
    home_dir,
    read_config,
    user_config_dir,
    user_socket_dirs,
)
from mxr.configuration.file_urls import BUCKET, BUCKET_URL, HUB, HUB_URL, Hub
from mxr.configuration.proxies import Proxies
from mxr.configuration.schema import BYTES, SECONDS, VARIABLES, Setting, check_registry_id, setting, settings_of
from mxr.errors import UsageError
from mxr.util import codec, disk
from mxr.util.frozen import dataclass

DEFAULT_REGISTRY = "http://127.0.0.1:8765"

MAX_REGISTRIES = 8

STATE = ".local/state"

KSERVE_CHOICES = ("ask", "wait", "local", "env", "host", "path")
"""What an operator can allow to the URIs of `kserve-init`: actions of on-miss, env, host facts and models by path."""

DEFAULTS = tuple(name for name in facts.names(facts.DEFAULT) if name not in ("consumer", "inputs"))
"""The settings that are defaults of a request where neither options nor host tell a fact. So is `consumer`."""


def _check_urls(text: str) -> str:
    """Return the URLs of registries with a comma between them."""
    urls = [_check_url(each.strip()) for each in text.split(",")]
    if len({*urls}) < len(urls) or len(urls) > MAX_REGISTRIES:
        raise ValueError(f"up to {MAX_REGISTRIES} different URLs of registries, with commas between them")
    return ",".join(urls)


def _check_url(url: str) -> str:
    url = url.rstrip("/")
    if url.startswith(HUB):
        if not HUB_URL.fullmatch(url):
            raise ValueError("hf://ORG/REPO/PATH or hf://ORG/REPO@REVISION/PATH")
        return url
    if url.startswith(BUCKET):
        if not BUCKET_URL.fullmatch(url):
            raise ValueError("s3://BUCKET/PREFIX")
        return url
    if "@" in url:
        # Not quoted: the part before it may be a password.
        raise UsageError(
            "The registry URL contains a user name or a password.",
            hint="Remove it, and run `mxr login` or set MXR_TOKEN_FILE.",
        )
    local = url.startswith(("unix:/", "file:///"))
    if not local and (not url.startswith(("http://", "https://")) or not _host(url)):
        raise ValueError("a registry URL such as https://HOST, http://HOST:8765, unix:/PATH or file:///FOLDER")
    return url


def _host(url: str) -> str | None:
    from urllib.parse import urlsplit

    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _check_path(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("an absolute path, because the home folder of this user is unknown") from None


def _check_token_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def _check_kserve(words: tuple[str, ...]) -> tuple[str, ...]:
    if not set(words) <= set(KSERVE_CHOICES):
        raise ValueError(f"a list of: {', '.join(KSERVE_CHOICES)}")
    return words


def _check_owners(value: object) -> tuple[int, ...]:
    """Return user ids from a list, or from a text with commas."""
    parts = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    try:
        found = tuple(int(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        found = (-1,)
    if any(not 0 <= each < 2**32 for each in found):
        raise ValueError("user ids, such as 1000,0")
    return found


def _default_of(name: str) -> Callable[[object], Any]:
    """Return the check of a request default."""

    def check(value: object) -> Any:
        from mxr.artifact.request_defaults import check_default

        try:
            return check_default(name, value)
        except UsageError as problem:
            raise ValueError(problem.message.removeprefix(f"{name} must be ")) from None

    return check


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client. Their repr has no secret.

    `others`: the URLs of further registries, which a fetch asks. `proxies`, `hub`: those of the environment.
    `socket_dirs`: folders of the sockets of this user's registries on this host. `withheld`: why a token is not for
    `registry`, as a sentence. `config_dir`: folder of this user's configuration. `home`: the home folder, above which
    no project file is looked for. `sources`: where each setting comes from, by its name; none for a default. `unused`:
    sentences about configuration files that are not used.
    """

    registry: str = setting(
        DEFAULT_REGISTRY,
        "The URL of the registry, without user and password; or several, with commas between them: a fetch takes the "
        "program of the first one that has it, and all else is for the first.",
        check=_check_urls,
        option="--registry",
    )
    token: str | None = setting(
        None, "The token that is sent.", secret=True, raw=True, check=_check_token_text, option="--token"
    )
    cache_dir: Path = setting(Path(), "The folder of the local cache.", check=_check_path, option="--cache-dir")
    consumer: str | None = setting(None, "The default of --for.", option="--for")
    host_file: Path | None = setting(
        None, "Recorded host facts (`mxr host --json`).", check=_check_path, option="--host", variable="MXR_HOST"
    )
    timeout: float = setting(60.0, "Time without a byte received.", unit=SECONDS, least=0.001, most=86_399)
    plaintext: bool = setting(False, "Send the token also over plain http to another machine.", option="--plaintext")
    kserve_allow: tuple[str, ...] = setting(
        (), "What the URIs of `kserve-init` may set beyond the default.", check=_check_kserve
    )
    max_age: float = setting(
        3600.0, "Time after which the registry confirms a cached answer.", unit=SECONDS, least=0, most=10**10
    )
    max_stale: float = setting(
        7 * 86400.0, "Time for which it serves while the registry is away.", unit=SECONDS, least=0, most=10**10
    )
    cache_size: int = setting(
        200 * 2**30,
        "Bytes of programs above which those go that were used longest ago; 0: no limit.",
        unit=BYTES,
        least=0,
    )
    cache_owners: tuple[int, ...] = setting(
        (), "User ids whose cache is read, besides this user's and root's.", raw=True, check=_check_owners
    )
    state_dir: Path | None = setting(
        None, "The folder for what this user keeps about the caches of others.", check=_check_path
    )
    rocm: str | None = setting(None, "The default of --rocm.", raw=True, check=_default_of("rocm"))
    migraphx: str | None = setting(None, "The default of --migraphx.", raw=True, check=_default_of("migraphx"))
    batch: tuple[int, ...] = setting((), "The default of --batch.", raw=True, check=_default_of("batch"))
    token_file: Path | None = setting(None, "A file that has the token.", check=_check_path)
    ca_file: Path | None = setting(
        None, "Certificates (PEM) of authorities that may sign the registry's.", check=_check_path
    )
    registry_id: str | None = setting(None, "The id of the registry; no other one is asked.", check=check_registry_id)
    retry: float = setting(
        15.0,
        "Time for which a request is repeated while the registry is away or busy.",
        unit=SECONDS,
        least=0,
        most=86_399,
    )
    others: tuple[str, ...] = ()
    proxies: Proxies = field(default_factory=Proxies)
    hub: Hub = field(default_factory=Hub)
    socket_dirs: tuple[Path, ...] = ()
    withheld: str = ""
    config_dir: Path | None = None
    home: Path | None = None
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    unused: tuple[str, ...] = ()

    @property
    def each_registry(self) -> tuple[Settings, ...]:
        """The settings for each registry, in the order in which a fetch asks them.

        What was configured beside the URLs, such as a token, is for the first one; `mxr login` stores those of others.
        """
        alone = replace(self, others=())
        own: dict[str, Any] = {"token": None, "token_file": None, "registry_id": None, "withheld": ""}
        return (alone, *(replace(alone, registry=url, **own) for url in self.others))

    @property
    def token_variables(self) -> dict[str, str]:
        """The environment variables with which another program uses the same token."""
        found = {"token": self.token, "token_file": self.token_file and str(self.token_file)}
        return {VARIABLES[name]: value for name, value in found.items() if value}


def load_settings(environ: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings. Flags in `given` override the environment, which overrides the configuration file.

    Raises `UsageError` for an invalid configuration file or value.
    """
    home = home_dir(environ)
    folder = user_config_dir(environ)
    config = folder and folder / "config.toml"
    file, unused = _read_file(config) if config else (None, ())
    table = (file and file.table()) or {}
    flags = {name: str(value) if isinstance(value, Path) else value for name, value in (given or {}).items()}
    flags = {name: value for name, value in flags.items() if value is not None}
    variables = {name: environ[variable] for name, variable in VARIABLES.items() if environ.get(variable)}
    if file is not None:
        file.check_names(table, VARIABLES)
        if "token" in table and config:
            _require_private(config)
    found: dict[str, Any] = {}
    for name, variable, below in (("cache_dir", "XDG_CACHE_HOME", ".cache"), ("state_dir", "XDG_STATE_HOME", STATE)):
        if above := environ.get(variable) or (home and home / below):
            found[name] = Path(above) / "mxr"
    sources: dict[str, str] = {}
    for each in settings_of("", Settings):
        labels = (each.facts.option or f"--{each.name.replace('_', '-')}", each.variable, str(config))
        for label, level in zip(labels, (flags, variables, table), strict=True):
            if each.name in level:
                found[each.name] = _value(each, level[each.name], label, file if level is table else None)
                sources[each.name] = label
                break
    found.setdefault("cache_dir", NOWHERE)
    first, *others = found.get("registry", DEFAULT_REGISTRY).split(",")
    found["registry"] = first
    token = _token_settings((flags, variables, table), first, found, sources)
    more: dict[str, Any] = {
        "others": tuple(others),
        "home": home,
        "config_dir": folder,
        "socket_dirs": user_socket_dirs(environ),
        "proxies": Proxies.of(environ),
        "hub": Hub.of(environ, home),
    }
    return Settings(**found | token | more, sources=sources, unused=unused)


def _first(urls: str) -> str:
    return urls.partition(",")[0].strip().rstrip("/")


def _value(each: Setting, value: object, label: str, file: ConfigFile | None) -> Any:
    """Return the value of a setting. Raises `UsageError` with where it comes from."""
    try:
        return each.of_text(value) if isinstance(value, str) and file is None else each.of_document(value)
    except ValueError as problem:
        wrong = "" if each.facts.secret else f", found {str(value)[:60]!r}"
        hint = f"Correct {each.name}. `mxr config` lists the settings."
        if file is not None:
            raise file.error(each.name, f"{each.name}: expected {problem}{wrong}", hint) from None
        raise UsageError(f"{label}: expected {problem}{wrong}.", hint=hint) from None


def _token_settings(
    levels: Sequence[Mapping[str, Any]], registry: str, found: Mapping[str, Any], sources: Mapping[str, str]
) -> dict[str, Any]:
    """Return `token`, `token_file` and `withheld`. `levels`: flags, variables and file.

    A token is for the registry that is set beside it or further down. With another one from further up, it is not sent:
    whoever runs that one would have it.
    """
    none: dict[str, Any] = {"token": None, "token_file": None, "withheld": ""}
    for at, level in enumerate(levels):
        names = [name for name in ("token", "token_file") if level.get(name)]
        if len(names) > 1:
            raise UsageError(
                f"{sources['token']} and {sources['token_file']} are both set.", hint="Set one of them, or neither."
            )
        if not names:
            continue
        meant = next((_first(str(level["registry"])) for level in levels[at:] if level.get("registry")), registry)
        if level is levels[-1] and not level.get("registry"):
            meant = DEFAULT_REGISTRY
        if meant != registry:
            return none | {"withheld": f"The token from {sources[names[0]]} is for {meant}, so it was not sent."}
        if names == ["token"]:
            return none | {"token": check_token(found["token"], sources["token"])}
        return none | {"token_file": found["token_file"]}
    return none


def _read_file(path: Path) -> tuple[ConfigFile | None, tuple[str, ...]]:
    """Return the user's file, and why it is not used."""
    try:
        # Tools that manage the files of a user put links there.
        return read_config(path, follow_links=True), ()
    except UntrustedFileError as reason:
        return None, (f"{path} is not used: {reason}",)


def _require_private(path: Path) -> None:
    try:
        read_config(path, follow_links=True, private=True)
    except UntrustedFileError as reason:
        raise UsageError(f"{path} sets token, but {reason}.", hint="Or remove it, and run `mxr login`.") from None


MAX_LENGTH = 4_096
STORE = "tokens.json"


def check_token(value: object, source: str) -> str | None:
    """Return a token without the newline that a mounted secret ends with; None for an empty one.

    Raises `UsageError`, which does not quote it.
    """
    text = str(value).strip()
    if not text:
        return None
    if len(text) > MAX_LENGTH or not all("!" <= letter <= "~" for letter in text):
        raise UsageError(
            f"{source}: the token has characters that a header cannot carry.",
            hint="Write the token alone: visible ASCII characters, without spaces and quotes.",
        )
    return text


def read_stored(config_dir: Path | None) -> dict[str, str]:
    """Return the token of each registry that `mxr login` has stored.

    Raises `UsageError` for a file that is no such store, or that others can read or write.
    """
    if config_dir is None:
        return {}
    path = config_dir / STORE
    try:
        file = read_config(path, private=True)
    except UntrustedFileError as reason:
        raise UsageError(f"{path} is not used: {reason}.", hint="Make it private, or remove it.") from None
    found: Any = codec.parse(file.text, str(path)) if file else {}
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise UsageError(f"{path} is no store of tokens.", hint="Remove it, and run `mxr login` again.")
    return found


def write_stored(config_dir: Path | None, tokens: Mapping[str, str]) -> None:
    """Replace what is stored. Raises `MxrError`, also where this user has no folder for it."""
    if config_dir is None:
        raise UsageError(
            "This user has no home folder, in which a token could be stored.",
            hint="Set HOME or XDG_CONFIG_HOME, or give the token with MXR_TOKEN_FILE.",
        )
    with disk.faults(config_dir):
        config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    disk.write_whole(config_dir / STORE, codec.canonical(dict(tokens)).encode() + b"\n", mode=0o600)


MARK = "  # by `mxr login`"


def set_default_registry(settings: Settings) -> Path | None:
    """Write the registry of these settings into the user's file, as the default; return the file.

    Returns None, and changes nothing, where a file names a token: it would go to another registry then. Raises
    `MxrError`.
    """
    assert settings.config_dir is not None
    path = settings.config_dir / "config.toml"
    file, unused = _read_file(path)
    if unused or path.is_symlink() or {"token", "token_file", "registry"} & ((file and file.table()) or {}).keys():
        return None
    # Before any table of the file.
    line = f"registry = {codec.canonical(settings.registry)}{MARK}\n"
    disk.write_whole(path, (line + (file.text if file else "")).encode(), mode=0o600)
    return path


def unset_default_registry(settings: Settings) -> Path | None:
    """Remove what `set_default_registry` wrote for the registry of these settings; return the file if it did."""
    if settings.config_dir is None:
        return None
    path = settings.config_dir / "config.toml"
    file, _ = _read_file(path)
    line = f"registry = {codec.canonical(settings.registry)}{MARK}\n"
    if file is None or path.is_symlink() or not file.text.startswith(line):
        return None
    disk.write_whole(path, file.text.removeprefix(line).encode(), mode=0o600)
    return path
