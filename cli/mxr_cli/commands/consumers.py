"""`mxr consumers`: the programs that load .mxr files."""

from __future__ import annotations

from mxr.consumers import CONSUMERS
from mxr_cli.help import command
from mxr_cli.options import Session, local
from mxr_cli.output import echo, print_json, print_table


@command()
@local
def consumers(session: Session) -> None:
    """List the supported consumers: the programs that load .mxr files.

    For each consumer, show the compile flags that `--for NAME` selects, the files that `mxr fetch -o FOLDER/` writes,
    and the page in the documentation.
    """
    if session.as_json:
        rows = [
            {
                "name": each.name,
                "summary": each.summary,
                "offload_copy": each.offload_copy,
                "fast_math": each.fast_math,
                "folder": bool(each.tree),
                "layout": each.tree or None,
                "page": each.page,
                "source": each.source,
            }
            for each in CONSUMERS.values()
        ]
        print_json({"consumers": rows})
        return
    flags = {True: "on", False: "off"}
    print_table(
        [
            (each.name, flags[each.offload_copy], flags[each.fast_math], each.summary, each.page)
            for each in CONSUMERS.values()
        ],
        ("NAME", "OFFLOAD_COPY", "FAST_MATH", "DESCRIPTION", "PAGE"),
    )
    echo()
    print_table(
        [(each.name, each.tree or "not supported: use -o FILE") for each in CONSUMERS.values()],
        ("NAME", "FILES IN A FOLDER"),
    )
