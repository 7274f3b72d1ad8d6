"""Names that do not exist, with the ones that may have been meant."""

from __future__ import annotations

from collections.abc import Collection


def suggest(unknown: Collection[str], known: Collection[str]) -> str:
    """Return a list of the unknown names, each with the known name that is most similar to it, if any is."""
    found = {name: find_similar(name, known) for name in sorted(unknown)}
    return ", ".join(f"{name} (did you mean {near}?)" if near else name for name, near in found.items())


def find_similar(name: str, known: Collection[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar, at least by the ratio *cutoff* of ``difflib``; None if none is."""
    import difflib  # seldom needed

    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)), None)
