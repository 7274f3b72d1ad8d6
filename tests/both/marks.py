"""Objects of one test on a server that others use, too."""

from __future__ import annotations

from typing import Any

from tests.both.conftest import Body
from tests.both.kinds import WIDGETS, manifest


def marked(
    name: str, *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> Body:
    body = manifest(WIDGETS, name, **spec)
    body["metadata"] |= {"labels": labels or {}, "annotations": annotations or {}}
    return body
