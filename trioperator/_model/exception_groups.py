"""What is in exception groups: their only error, or all of them."""

from __future__ import annotations

from collections.abc import Iterator


def unwrap_group(error: BaseException) -> BaseException:
    """Return the only error in the exception groups of nurseries, or the group that has several."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def iterate_leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in an exception group and in the groups in it; an error that is no group is the only one."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from iterate_leaves(part)
    else:
        yield error
