"""Settings of operators that change how they do the same: where they store it, and how they list, queue and watch."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import trioperator
from tests.lives.world import GROUP, KINDS

if TYPE_CHECKING:
    from tests.lives.life import Life

# The shares of lives that are tuned, and of all that have several other values of settings.
_TUNED, _VARIED = 0.25, 0.1
# These settings, with values that are small, large, or switch something off. Some hold writes up, or requests: the
# limits of the findings are for others.
_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "background.exit_timeout": (0, 1, 20),
    "background.spread": (10,),
    "contention.enabled": (False,),
    "contention.flips": (1, 2),
    "contention.interval": (5,),
    "execution.default_backoff": (0.1, 1, 10),
    "execution.max_workers": (1, 2),
    "networking.enforce_retry_after": (True,),
    "networking.error_backoffs": (0, (0, 0, 0), (5,)),
    "networking.max_connections": (1, 2, 5),
    "pausing.condition": (None,),
    "peering.lifetime": (10, 30),
    "persistence.consistency_timeout": (0, 0.5, 30),
    "persistence.write_delay": (0, 1, 5),
    "posting.enabled": (True,),
    "process.grace": (1, 5),
    "queueing.backlog_limit": (1, 2),
    "queueing.batch_window": (0.1, 2),
    "queueing.worker_limit": (3, None),
    "watching.client_timeout": (3, 10),
    "watching.connect_timeout": (0.5, 5),
    "watching.inactivity_timeout": (2, 10, math.inf),
    "watching.reconnect_backoff": (0, 1, 5),
}


class _Failing(trioperator.AnnotationsProgressStorage):
    """A storage of a user's that fails now and then while there is trouble."""

    def __init__(self, life: Life) -> None:
        super().__init__(prefix="lives.example.com")
        self._life = life

    def _fail(self) -> None:
        if not self._life.is_peaceful and self._life.random.random() < 0.1:
            raise OSError("the storage is not available")

    def fetch(self, **given: Any) -> Any:
        self._fail()
        return super().fetch(**given)

    def store(self, **given: Any) -> None:
        self._fail()
        super().store(**given)

    def purge(self, **given: Any) -> None:
        self._fail()
        super().purge(**given)


class _OwnStorage(trioperator.ProgressStorage):
    """A storage of a user's: all records of an object in one annotation."""

    _KEY = "records.example.com/all"

    def _load(self, *sources: Any) -> dict[str, Any]:
        for source in sources:
            text = ((source.get("metadata") or {}).get("annotations") or {}).get(self._KEY)
            if text is not None:
                found: dict[str, Any] = json.loads(text)
                return found
        return {}

    def _save(self, records: dict[str, Any], patch: Any) -> None:
        patch.setdefault("metadata", {}).setdefault("annotations", {})[self._KEY] = json.dumps(records)

    def fetch(self, *, key: str, body: Any) -> Any:
        return self._load(body).get(key)

    def store(self, *, key: str, record: Any, body: Any, patch: Any) -> None:
        self._save({**self._load(patch, body), key: record}, patch)

    def purge(self, *, key: str, body: Any, patch: Any) -> None:
        records = self._load(patch, body)
        if records.pop(key, None) is not None:
            self._save(records, patch)

    def clear(self, *, essence: Any) -> Any:
        essence = copy.deepcopy(dict(essence))
        metadata = essence.get("metadata", {})
        if metadata.get("annotations", {}).keys() == {self._KEY}:
            del metadata["annotations"]
        elif "annotations" in metadata:
            metadata["annotations"].pop(self._KEY, None)
        if metadata == {}:
            essence.pop("metadata", None)
        return essence


def draw_tuning(seed: int, names: Collection[str]) -> tuple[str, ...]:
    """Return the names of what is tuned in a life with parts and troubles of these names."""
    rng = random.Random(f"tuning {seed}")
    varied = ("varied",) if random.Random(f"varied {seed}").random() < _VARIED else ()
    if rng.random() > _TUNED:
        return varied
    chosen = set(rng.sample(sorted(_TUNINGS), rng.choice([1, 1, 2, 3])))
    if {"children", "versions"} & {*names}:
        chosen -= {"opaque"}  # states of a child, or of two versions of a kind, cannot be compared
    return (*sorted(chosen), *varied)


def tune(settings: trioperator.OperatorSettings, life: Life) -> None:
    """Change the settings of an operator as its life's plan says."""
    for name in life.plan.options.get("tuning", ()):
        (_vary if name == "varied" else _TUNINGS[name])(settings, life)


def _status(settings: Any, life: Life) -> None:
    settings.persistence.progress_storage = trioperator.StatusProgressStorage()
    settings.persistence.diffbase_storage = trioperator.StatusDiffBaseStorage()


def _both(settings: Any, life: Life) -> None:
    settings.persistence.progress_storage = trioperator.MultiProgressStorage(
        [trioperator.AnnotationsProgressStorage(), trioperator.StatusProgressStorage()]
    )
    settings.persistence.diffbase_storage = trioperator.MultiDiffBaseStorage(
        [trioperator.StatusDiffBaseStorage(), trioperator.AnnotationsDiffBaseStorage()]
    )


def _failing(settings: Any, life: Life) -> None:
    settings.persistence.progress_storage = _Failing(life)


def _own_storage(settings: Any, life: Life) -> None:
    settings.persistence.progress_storage = _OwnStorage()


def _digested(settings: Any, life: Life) -> None:
    settings.persistence.digested_fields = {f"{plural}.{GROUP}": ["spec"] for plural, _ in KINDS.values()}
    settings.persistence.digest_key = "a key"


def _batches(settings: Any, life: Life) -> None:
    settings.queueing.batch_window = 0.5


def _workers(settings: Any, life: Life) -> None:
    settings.queueing.worker_limit = 1


def _pages(settings: Any, life: Life) -> None:
    settings.watching.page_size = 1


def _streaming(settings: Any, life: Life) -> None:
    settings.watching.initial_streaming = True


def _all_objects(settings: Any, life: Life) -> None:
    settings.watching.infer_selectors = False


def _short_watches(settings: Any, life: Life) -> None:
    settings.watching.server_timeout = 2


def _vary(settings: Any, life: Life) -> None:
    rng = random.Random(f"values {life.plan.seed}")
    for name in rng.sample(sorted(_VALUES), rng.choice([1, 2, 3, 5])):
        section, _, field = name.partition(".")
        setattr(getattr(settings, section), field, rng.choice(_VALUES[name]))


def _opaque(settings: Any, life: Life) -> None:
    """Leave the settings as they are: the versions of objects are no numbers."""


_TUNINGS: Final = {
    "status": _status,
    "both": _both,
    "failing": _failing,
    "own storage": _own_storage,
    "digested": _digested,
    "batches": _batches,
    "workers": _workers,
    "pages": _pages,
    "streaming": _streaming,
    "all objects": _all_objects,
    "short watches": _short_watches,
    "opaque": _opaque,
}
