"""Lists, page by page, and their selectors."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from trioperator._kube.api_client import ApiClient, Params
from trioperator._kube.objects import BrokenObject, RawObject
from trioperator._model.jsontypes import JsonObject
from trioperator.errors import NotFoundError

T = TypeVar("T")

# Characters of the keys and values of labels, and characters with a meaning in field selectors.
_IN_LABELS: Final = re.compile(r"[\w./-]*", re.ASCII)
_SPECIAL: Final = re.compile(r"([\\,=])")
_ESCAPED: Final = r"\\\1"

#: A selector as a string, such as ``"app=web,tier!=cache"``, or as a mapping of values that must be equal.
Labels: TypeAlias = str | Mapping[str, str]


class Listing(NamedTuple):
    """Where a list is requested: the client and the path. Call *forget* if the server does not serve that path."""

    kube: ApiClient
    path: str
    forget: Callable[[], None]


def make_selectors(labels: Labels | None, fields: Labels | None, *, name: str | None = None) -> dict[str, str]:
    """Return the parameters of a request for the objects that match the selectors, and have the *name*.

    Values in a mapping are taken literally: they cannot add terms. Raises ValueError for values that no label can have.
    """
    chosen = [_join_fields({"metadata.name": name})] if name is not None else []
    selectors = {
        "labelSelector": _join_labels(labels) if labels else "",
        "fieldSelector": ",".join([_join_fields(fields), *chosen] if fields else chosen),
    }
    return {key: value for key, value in selectors.items() if value}


def _join_labels(selector: Labels) -> str:
    if isinstance(selector, str):
        return selector
    for text in (str(part) for pair in selector.items() for part in pair):
        if _IN_LABELS.fullmatch(text) is None:
            raise ValueError(f"No label can contain {text!r}: pass a string for a selector with more than equality.")
    return ",".join(f"{key}={value}" for key, value in selector.items())


def _join_fields(selector: Labels) -> str:
    if isinstance(selector, str):
        return selector
    return ",".join(f"{key}={_SPECIAL.sub(_ESCAPED, str(value))}" for key, value in selector.items())


def report_broken(kube: ApiClient, path: str, broken: BrokenObject) -> None:
    """Log a warning about an object that cannot be read, and is left out of a list."""
    name = "An object" if broken.identity is None else broken.identity
    kube.options.find_logger().warning("%s is left out of the list of %s: %s", name, path, broken.problem)


class ObjectPages(Generic[T]):
    """An asynchronous iterator over the objects of a list, which is requested page by page.

    *locate* returns where it is; *limit* is the number of objects in a page (None: ``settings.watching.page_size``, 0:
    the whole list); *decode* is applied to each object. Nothing stays open between pages, so you can leave the
    iteration at any time. It can be continued after an error of *decode*.

    ``left_out`` is the number of objects so far that are not among them, with a warning each, as they cannot be read:
    whoever may create objects can nest them too deeply.
    """

    def __init__(
        self,
        locate: Callable[[], Awaitable[Listing]],
        params: Params,
        *,
        decode: Callable[[JsonObject], T],
        limit: int | None = None,
    ) -> None:
        self._locate = locate
        self._params = params
        self._decode = decode
        self._limit = limit
        self._objects: deque[RawObject] = deque()
        self._token: str | None = ""
        self.left_out = 0

    def as_dicts(self) -> ObjectPages[JsonObject]:
        """Return an iterator over the same list from its beginning, whose objects are dicts."""
        return ObjectPages(self._locate, self._params, decode=lambda obj: obj, limit=self._limit)

    def restart(self, *, limit: int | None = None) -> ObjectPages[T]:
        """Return an iterator over the same list from its beginning."""
        return ObjectPages(self._locate, self._params, decode=self._decode, limit=limit)

    def __aiter__(self) -> ObjectPages[T]:
        return self

    async def __anext__(self) -> T:
        return self._decode(await self._take())

    async def _take(self) -> JsonObject:
        while True:
            while not self._objects:
                if self._token is None:
                    raise StopAsyncIteration
                await self._request(self._token)
            raw = self._objects.popleft()
            try:
                return raw.decode()
            except msgspec.MsgspecError as exc:
                self.left_out += 1
                found = await self._locate()
                found.kube.options.find_logger().warning("%s is left out of a list: %s", raw, exc)

    async def _request(self, token: str) -> None:
        kube, path, forget = await self._locate()
        limit = kube.settings.watching.page_size if self._limit is None else self._limit
        try:
            page = await kube.list_page(path, params=self._params, limit=limit, continue_=token)
        except NotFoundError:
            forget()
            raise
        for broken in page.broken:
            report_broken(kube, path, broken)
        self.left_out += len(page.broken)
        self._objects.extend(page.items)
        self._token = page.next or None
