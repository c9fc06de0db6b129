"""Help with the options in groups, those that people use first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click


class GroupedCommand(click.Command):
    """A command whose `--help` lists its options in groups. Options that no group names come last."""

    groups: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Names of parameters by title, in the order in which they are listed."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each group."""
        records = {
            parameter.name: record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None
        }
        for title, names in self.groups.items():
            self._write(formatter, title, [records.pop(name) for name in names])
        self._write(formatter, "Connection, cache and output", list(records.values()))

    @staticmethod
    def _write(formatter: click.HelpFormatter, title: str, rows: list[tuple[str, str]]) -> None:
        with formatter.section(title):
            formatter.write_dl(rows)
