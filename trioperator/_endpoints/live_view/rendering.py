"""Pages as HTML: the templates, all of which escape what they get."""

from __future__ import annotations

import datetime
import hashlib
import importlib.resources
import pathlib
from collections.abc import Mapping
from typing import Any, Final

import jinja2

from trioperator._endpoints.live_view.pages import PAGES, Links

_FOLDER: Final = pathlib.Path(str(importlib.resources.files(__package__)))
#: Files that pages load, with their types.
ASSETS: Final[Mapping[str, tuple[bytes, str]]] = {
    name: ((_FOLDER / "assets" / name).read_bytes(), content_type)
    for name, content_type in (
        ("live.css", "text/css; charset=utf-8"),
        ("live.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    )
}
_VERSION: Final = hashlib.sha256(b"".join(content for content, _ in ASSETS.values())).hexdigest()[:12]


class Renderer:
    """Renders templates: whole pages, and the parts of them that are live."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._environment.filters.update(seconds=format_seconds, time=format_time)
        self._environment.globals.update(pages=PAGES, version=_VERSION)

    def render(self, template: str, *, root: str, live_only: bool = False, **values: Any) -> str:
        """Return a page as HTML; with *live_only*, the part of it that changes."""
        layout = self._environment.get_template("fragment.html" if live_only else "layout.html")
        return self._environment.get_template(template).render(layout=layout, url=Links(root), **values)


def format_seconds(seconds: float | None) -> str:
    """Return a duration as people read it."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def format_time(time: datetime.datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return "" if time is None else time.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
