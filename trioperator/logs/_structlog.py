"""structlog, imported without rich.

structlog looks for rich at its import, to be ready to print colourful tracebacks in a developer's console, which nobody
here asks for: 4 MiB of an operator's memory. Where rich is loaded already, or structlog is, everything is as it is.
"""

from __future__ import annotations

import sys

_hidden = "rich" not in sys.modules
if _hidden:
    sys.modules["rich"] = None  # type: ignore[assignment]  # this is how an import is made to fail
try:
    from structlog import BoundLoggerBase, DropEvent
    from structlog.contextvars import merge_contextvars
finally:
    if _hidden:
        del sys.modules["rich"]

__all__ = ["BoundLoggerBase", "DropEvent", "merge_contextvars"]
