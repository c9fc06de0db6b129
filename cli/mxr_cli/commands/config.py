"""`mxr config`: the settings and the request defaults, each with where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mxr.errors import MxrError
from mxr_cli.help import command, completes
from mxr_cli.options import Session, common
from mxr_cli.output import note, print_json, print_table

if TYPE_CHECKING:
    from mxr.artifact.request_defaults import RequestDefaults
    from mxr.settings import Settings

BUILT_IN = "default"
"""Where a value comes from that nobody set."""


@command()
@click.argument("model", metavar="[MODEL]", required=False, shell_complete=completes("model"))
@click.option("--offline", is_flag=True, help="Show what the registry told last; never contact it.")
@common
def config(session: Session, model: str | None, offline: bool) -> None:
    """Show every setting and request default with its value and where it comes from.

    Options override environment variables, these the user's file (config.toml), and that the files of the project:
    mxr.toml, or [tool.mxr] in pyproject.toml, beside MODEL or above it. Without MODEL, the current folder counts.
    Request defaults of the registry come last. The token is never shown.

    \b
    mxr config
    mxr config models/resnet50.onnx
    """
    from mxr.request.defaults import of_project, of_settings

    project = of_project(model, session.settings)
    configured = of_settings(session.settings).over(project.defaults)
    defaults = configured.over(_of_registry(session, offline=offline))
    unused = (*session.settings.unused, *project.unused)
    settings = _settings(session.settings)
    requests = _defaults(defaults)
    if session.as_json:
        files = [str(path) for path in project.files]
        print_json({"settings": settings, "defaults": requests, "project_files": files, "unused": list(unused)})
        return
    rows = [(name, row) for name, row in (*settings.items(), *requests.items())]
    print_table([(name, _shown(row["value"]), row["from"] or "") for name, row in rows], ("NAME", "VALUE", "FROM"))
    for line in project.unused:
        note(f"mxr: {line}")


def _of_registry(session: Session, *, offline: bool) -> RequestDefaults:
    """The defaults of the registry; those that it told last, and a note, where it cannot be asked."""
    from mxr.workflows.preparation import find_namespace_defaults

    try:
        return find_namespace_defaults(session.cache(), session.connect(offline=offline))
    except MxrError as problem:
        note(f"mxr: the registry's defaults are not known: {problem.message}")
        return find_namespace_defaults(session.cache(), None)


def _settings(found: Settings) -> dict[str, dict[str, Any]]:
    """Each setting that is no request default, with its value in the form of the configuration file."""
    from mxr.artifact.request_defaults import NAMES
    from mxr.configuration.schema import settings_of
    from mxr.settings import Settings

    proxy, variable = found.proxies.choose(found.registry)
    rows = {
        setting.name: {
            "value": setting.shown(getattr(found, setting.name)),
            "from": found.sources.get(setting.name, BUILT_IN),
        }
        for setting in settings_of("", Settings)
        if setting.name not in NAMES
    }
    rows["registry"]["value"] = ",".join((found.registry, *found.others))
    return rows | {"proxy": {"value": proxy and proxy.address, "from": variable or BUILT_IN}}


def _defaults(defaults: RequestDefaults) -> dict[str, dict[str, Any]]:
    from mxr.artifact.request_defaults import BATCH_DIM, NAMES

    rows: dict[str, dict[str, Any]] = {}
    for name in (*NAMES, "allow"):
        if name != "inputs":
            value = getattr(defaults, name)
            shown = list(value) or None if isinstance(value, tuple) else value
            rows[name] = {"value": shown, "from": defaults.sources.get(name)}
    for name, dims in defaults.inputs.items():
        from mxr.artifact.target import show_dims

        words = [BATCH_DIM if dim is None else show_dims((dim,)) for dim in dims]
        rows[f"inputs.{name}"] = {"value": words, "from": defaults.sources[f"inputs.{name}"]}
    return rows


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
