"""structlog, imported without rich.

structlog imports rich if it is installed, for colourful tracebacks in consoles, which are not used here and cost 4 MiB
of memory. If rich or structlog is already imported, nothing changes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

_hidden = "rich" not in sys.modules
if _hidden:
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes the import fail
try:
    from structlog import BoundLoggerBase, DropEvent
    from structlog import contextvars as _contextvars
    from structlog.contextvars import bound_contextvars, merge_contextvars
finally:
    if _hidden:
        del sys.modules["rich"]

# The variables that were ever bound; something where that is not known. To look for bound ones, structlog copies and
# searches the whole context.
bound_variables: Final[Mapping[str, Any]] = getattr(_contextvars, "_CONTEXT_VARS", {"": None})


__all__ = ["BoundLoggerBase", "DropEvent", "bound_contextvars", "bound_variables", "merge_contextvars"]
