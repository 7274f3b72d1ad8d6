"""Entry point of clusters that keep their objects in a file."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import AsyncIterator
from typing import Any, Final

import trio

from trioperator._concurrency.threads import run_in_thread

from .cluster import Cluster

_FLUSH_TIMEOUT: Final = 5.0  # seconds, for the last changes when the cluster is closed


@contextlib.asynccontextmanager
async def open_cluster(data: str | os.PathLike[str], **options: Any) -> AsyncIterator[Cluster]:
    """Open a cluster that persists its objects in a file, and loads those that are in it.

    Each write is synced to the file before its response is sent, so that no acknowledged write is lost, however the
    process ends. Objects, uids, resource versions and definitions survive a restart. The history does not: earlier
    watches and pages get HTTP 410. The options are the same as for :class:`Cluster`.

    Raises ConfigError if the file cannot be opened, is corrupt, or is in use. Once the file cannot be written, each
    write raises DataFileError.
    """
    from .store.data_file import DataFile

    opening = functools.partial(DataFile.open, data)
    file = await run_in_thread(opening, limiter=trio.CapacityLimiter(1), abandon_on_cancel=False)
    try:
        cluster = Cluster(data=file, **options)
        await file.flush()
        yield cluster
    finally:
        try:
            with trio.move_on_after(_FLUSH_TIMEOUT, shield=True):
                await file.flush()
        finally:
            file.close()
