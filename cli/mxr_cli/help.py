"""The `--help` of commands: the usual options on one screen, all of them in groups with `--help-all`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import mxr.facts as facts
from mxr.display.streams import write_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PARAMETERS = {"options": "options_"}
"""The parameters of facts that are not named like the fact. `options` is the whole request in functions of commands."""

FACTS = {PARAMETERS.get(fact.name, fact.name): fact for fact in facts.FACTS}
CONNECTION = ("registry", "plaintext", "cache_dir", "offline", "refresh", "as_json", "debug", "help", "help_all")


ARTIFACTS, MODELS, JOBS = "artifacts", "models", "jobs"
"""What a shell completes besides facts: ids of artifacts and of jobs, and models by name."""


def completes(what: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the function of click that completes a fact, by its name, a file (`model`), or one of the above."""

    def found(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from .completion import complete

        return complete(what, context.params, begun)

    return found


class HelpfulCommand(click.Command):
    """A command whose options are listed in groups.

    `usual`: the parameters in `--help`, in this order; without it, all of them. What follows a form feed in the text of
    the command is then shown with `--help-all` only. `groups`: parameters by title; those that no group names are the
    command's own, facts of a request, or options of the connection.
    """

    def __init__(
        self, *words: Any, usual: Sequence[str] = (), groups: Mapping[str, Sequence[str]] | None = None, **values: Any
    ) -> None:
        super().__init__(*words, **values)
        self.usual = usual
        self.groups = groups or {}
        if usual:
            option = click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all)
            option.help = "Show all options and exit."
            self.params.append(option)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does."""
        shown, _, more = inspect.cleandoc(self.help or "").partition("\f")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(shown.rstrip() + (f"\n\n{more.strip()}" if _shows_all(ctx) else ""))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each group."""
        rows = {each.name: row for each in self.get_params(ctx) if (row := each.get_help_record(ctx)) is not None}
        if self.usual and not _shows_all(ctx):
            with formatter.section("Options"):
                formatter.write_dl([rows[name] for name in self.usual])
            more = len(rows) - len(self.usual)
            formatter.write(f"\n{more} more options, --json among them: {ctx.command_path} --help-all\n")
            return
        groups = {title: [rows.pop(name) for name in names] for title, names in self.groups.items()}
        own = [row for name, row in rows.items() if name not in FACTS and name not in (*CONNECTION, "host_file")]
        asked = [rows[name] for name in FACTS if name in rows and FACTS[name].has(facts.USUAL)]
        others = [rows[name] for name in FACTS if name in rows and not FACTS[name].has(facts.USUAL)]
        others += [rows["host_file"]] if "host_file" in rows else []
        groups = {"Options": own} | {"Request": asked} | groups | {"More of the request": others}
        groups["Connection, cache and output"] = [rows[name] for name in CONNECTION if name in rows]
        if not any((self.groups, asked, others)):
            groups = {"Options": [*own, *groups["Connection, cache and output"]]}
        for title, listed in groups.items():
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)


def _shows_all(context: click.Context) -> bool:
    return bool(context.meta.get(__name__))


def _show_all(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if given and not context.resilient_parsing:
        context.meta[__name__] = True
        write_text(context.get_help())
        context.exit()


def command(
    name: str | None = None, *, usual: Sequence[str] = (), groups: Mapping[str, Sequence[str]] | None = None
) -> Callable[[Callable[..., Any]], HelpfulCommand]:
    """As `click.command`, with the arguments of `HelpfulCommand`."""
    return click.command(name, cls=HelpfulCommand, usual=usual, groups=groups)
