"""Run by an interpreter that has a real migraphx: runs the programs that it is told of, and saves what comes out.

One order a line on standard input, `{"program": PATH, "values": NPZ, "outputs": NPZ}`; a line when it is done, empty or
what went wrong.
"""

from __future__ import annotations

import json
import sys

import migraphx
import numpy as np


def run(order: dict) -> None:
    """The outputs by their place, as float64 where numpy does not know their type."""
    program = migraphx.load(order["program"])
    with np.load(order["values"]) as stored:
        # migraphx.argument only refers to the memory of an array: these must live until the run is over.
        values = {name: np.array(stored[name], order="C") for name in stored.files}
    wanted = program.get_parameter_shapes()
    found = program.run({name: migraphx.argument(values[name]) for name in wanted})
    arrays = {f"out{at}": np.array(found[at]) for at in range(len(found))}
    np.savez(order["outputs"], **arrays)


def main() -> None:
    """Runs what it is told until the input ends."""
    for line in sys.stdin:
        try:
            run(json.loads(line))
            said = ""
        except Exception as problem:
            said = f"{type(problem).__name__}: {problem}".replace("\n", " ")
        sys.stdout.write(said + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
