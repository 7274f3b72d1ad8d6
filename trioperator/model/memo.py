"""The default memo: what handlers keep in memory of an object, or of the operator."""

from __future__ import annotations

from typing import Any

__all__ = ["Memo"]


class Memo(dict[Any, Any]):
    """Be a dictionary whose items are attributes, too.

    Each object gets a copy of the operator's memo when it is first asked for, shared by all its handlers and lost
    with the operator's process.
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
