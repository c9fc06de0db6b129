"""For all tests: the programs that they start must hear Ctrl-C, however the tests themselves were started."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has them ignore SIGINT, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
