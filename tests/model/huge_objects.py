"""``python -m tests.model.huge_objects SHAPE``: print by how many MiB a process grows that uses huge objects in turns.

Meanwhile, small objects are made, of which some live on.
"""

from __future__ import annotations

import gc
import random
import sys
from collections import deque
from typing import Any, Final

import msgspec

from tests.model.test_freed_memory import resident
from trioperator._model.lazy_object import LazyObject

SHAPES: Final[dict[str, Any]] = {
    "wide": [[]] * 400_000,
    "keys": [{f"k{number % 1000}": 0} for number in range(120_000)],
}


class Others:
    """Small objects, of which the last 2,000 live on, unless they are replaced by chance."""

    def __init__(self) -> None:
        self._kept: deque[object] = deque(maxlen=2000)
        self._random = random.Random(0)

    def make(self, number: int = 150) -> None:
        """Make some."""
        size = self._random.randrange
        for each in range(number):
            self._kept.append(({}, [each], (each, each + 0.5, "x" * size(10, 400)), {"x": b"x" * size(1, 400)}))
        for place in self._random.sample(range(len(self._kept)), number // 2):
            self._kept[place] = None


def main(shape: str) -> None:
    """Use objects of a shape, and print by how much the process has grown."""
    gc.disable()
    raw = msgspec.json.encode({"metadata": {"name": "w"}, "spec": SHAPES.pop(shape)})
    SHAPES.clear()
    others, calls = Others(), deque[Any]()
    others.make(3000)
    before = resident()
    for _ in range(30):
        found = LazyObject.of(raw, lambda: msgspec.json.decode(raw), soon=calls.append)
        others.make()
        assert found["spec"]
        others.make()
        while calls:
            calls.popleft()()
        others.make()
    sys.stdout.write(f"{(resident() - before) / 2**20}\n")


if __name__ == "__main__":
    main(sys.argv[1])
