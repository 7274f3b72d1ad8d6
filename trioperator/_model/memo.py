"""Default memo: in-memory data of handlers, for an object or for the operator."""

from __future__ import annotations

from typing import Any


class Memo(dict[Any, Any]):
    """Dictionary with attribute access to its items.

    Each object gets a shallow copy of the operator's memo on first use. It is shared by all handlers of the object, and
    lost when the operator exits.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"The memo has no {name!r}.") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"The memo has no {name!r}.") from None

    def __copy__(self) -> Memo:
        return type(self)(self)
