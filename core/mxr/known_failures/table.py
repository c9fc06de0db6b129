"""All known failures: the tables of the programs, joined in the order in which the explainer searches them.

To add a failure, add a row to the table of the program that prints the text, and a sample line to
`tests/core/known_failures/test_explainer.py`. Rules for a row, all of them tested:

- A pattern is matched against one line at a time, without regard to case. The line has no colours, timestamps or other
  logger prefixes, and runs of blanks are single blanks.
- Matching must take linear time: every repeat has an upper bound.
- Needles are literal, in lower case, and rare in ordinary logs.

Sources name files of MIGraphX 2.16 (ROCm/AMDMIGraphX, May 2026) unless they say otherwise. "run" at the end of a source
means that the text was observed when running MIGraphX 2.16 on its reference target. The other texts were read in source
code or in public issues.
"""

from __future__ import annotations

from mxr.known_failures.amdinfer import AMDINFER
from mxr.known_failures.hip import HIP
from mxr.known_failures.kernel import KERNEL
from mxr.known_failures.migraphx_compiles import MIGRAPHX_COMPILES
from mxr.known_failures.migraphx_devices import MIGRAPHX_DEVICES
from mxr.known_failures.migraphx_files import MIGRAPHX_FILES
from mxr.known_failures.migraphx_interface import MIGRAPHX_INTERFACE
from mxr.known_failures.migraphx_runs import MIGRAPHX_RUNS
from mxr.known_failures.migraphx_versions import MIGRAPHX_VERSIONS
from mxr.known_failures.onnxruntime import ONNXRUNTIME
from mxr.known_failures.record import KnownFailure

__all__ = ["FAILURES"]

FAILURES: tuple[KnownFailure, ...] = (
    *MIGRAPHX_VERSIONS,
    *MIGRAPHX_FILES,
    *MIGRAPHX_RUNS,
    *MIGRAPHX_DEVICES,
    *MIGRAPHX_COMPILES,
    *ONNXRUNTIME,
    *AMDINFER,
    *HIP,
    *KERNEL,
    *MIGRAPHX_INTERFACE,
)
"""The order decides between failures of the same level on the same line: the first is reported first."""
