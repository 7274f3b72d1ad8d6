"""The parts of operators: each has a kind, its handlers, those who change its objects, and what must hold."""

from __future__ import annotations

from tests.lives.parts.background import Background
from tests.lives.parts.base import Deeds, Part
from tests.lives.parts.changes import Changes
from tests.lives.parts.children import Children
from tests.lives.parts.indexed import Indexed
from tests.lives.parts.nested import Nested
from tests.lives.parts.places import Places
from tests.lives.parts.resumed import Resumed
from tests.lives.parts.reviewed import Reviewed
from tests.lives.parts.scripts import Scripts
from tests.lives.parts.selection import Selection
from tests.lives.parts.tasks import Tasks
from tests.lives.parts.trees import Trees
from tests.lives.parts.waiting import Waiting

__all__ = ["PARTS", "Deeds", "Part"]

PARTS: dict[str, type[Part]] = {
    part.__name__.lower(): part
    for part in (
        Background,
        Changes,
        Children,
        Indexed,
        Nested,
        Places,
        Resumed,
        Reviewed,
        Scripts,
        Selection,
        Tasks,
        Trees,
        Waiting,
    )
}
