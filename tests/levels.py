"""How deeply JSON is nested in tests of what cannot be read."""

from __future__ import annotations

import sys
from typing import Final

#: More levels than any decoder reads. From Python 3.14 on, it is the size of the stack that limits them.
TOO_MANY: Final = 100_000 if sys.version_info < (3, 14) else 1_000_000
