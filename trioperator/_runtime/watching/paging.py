"""Pages of a list: as many objects at a time as the settings say, and fewer where these are big.

Objects may have 1.5 MB, and users who may create objects control their size. So pages are limited in bytes, too: one
that is larger is requested again, with fewer objects. By a slow link, pages are small enough to arrive in time.
"""

from __future__ import annotations

from typing import Final

import trio

from trioperator._http.transport import BodyTooLargeError, ResponseTimeoutError
from trioperator._kube.api_client import ApiClient, Params
from trioperator._kube.objects import Page
from trioperator._model.shard_ranges import ShardRanges

#: Limit of the bytes of a page; a page with a single object may be as large as any response.
MAX_PAGE: Final = 32 * 1024 * 1024
# Target for the bytes of a page.
_GOOD_PAGE: Final = MAX_PAGE // 4
# Target for the time that a page takes, as a share of the time that it may take.
_GOOD_SHARE: Final = 0.25
# Largest factor by which the number of objects in a page changes at once.
_FACTOR: Final = 8


class Pager:
    """Requests of the pages of one list, repeatedly. It remembers how many objects make a good page.

    They are sent by ``client``, which selects those of some ``shards``, or has none. Nothing is retried.
    """

    def __init__(self, client: ApiClient, path: str) -> None:
        self.client = client.retrying(())
        shards = client.options.selection.get("shardSelector")
        self.shards = ShardRanges.parse(str(shards)) if shards else None
        self._path = path
        self._limit: int | None = None  # None: what the settings say
        self._count = 0

    async def get(self, token: str, params: Params | None = None) -> Page:
        """Return the page that *token* stands for, ``""`` for the first one, of what *params* select.

        Raises as the client does. If a page does not arrive in time, the next one that is requested has fewer objects.
        """
        while True:
            settings, started = self.client.settings, trio.current_time()
            page_size = settings.watching.page_size
            limit = page_size if self._limit is None else min(self._limit, page_size)
            max_size = min(MAX_PAGE, settings.networking.response_limit) if limit > 1 else None
            client = self.client.limiting(max_size)
            try:
                page = await client.list_page(self._path, params=params, limit=limit, continue_=token)
            except (BodyTooLargeError, ResponseTimeoutError) as error:
                self._limit = max(1, limit // _FACTOR)
                if limit == 1 or isinstance(error, ResponseTimeoutError):
                    raise
                continue
            self._adjust(page, limit, seconds=trio.current_time() - started)
            return page

    async def get_whole(self, params: Params | None = None) -> Page:
        """Return the whole list. Raises as the client does."""
        page = await self.client.list_page(self._path, params=params)
        self._count += len(page.items)
        return page

    def take_count(self) -> int:
        """Return the number of objects in the pages since the last call."""
        count, self._count = self._count, 0
        return count

    def _adjust(self, page: Page, limit: int, *, seconds: float) -> None:
        """Choose the number of objects in the next page, by the size of those in this one, and how long that took."""
        count = len(page.items) + len(page.broken)
        self._count += count
        if count:
            good = _GOOD_PAGE * count // page.size
            timeout = self.client.settings.networking.request_timeout
            if timeout is not None and seconds > 0:
                good = min(good, int(timeout * _GOOD_SHARE * count / seconds))
            self._limit = max(1, min(good, limit * _FACTOR))
