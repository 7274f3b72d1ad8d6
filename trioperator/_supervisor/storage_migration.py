"""Migration of stored objects to the storage version of their CRD, after which old versions can be removed from it.

An API server stores an object in the storage version whenever it is written; an update that changes nothing is written
if the object is stored in another version, and only then. So all objects are replaced by themselves, in the order of
the list, which is by their keys. How far that has come is kept on the CRD: a migration that was interrupted goes
on there. Objects that are created or moved behind it meanwhile are in the storage version already.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from trioperator._concurrency.clock import wall_now
from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator._kube.error_response import describe_failure, is_denial
from trioperator._kube.retry import is_always_500
from trioperator._logs import get_logger
from trioperator.errors import (
    ApiError,
    ConfigError,
    ConflictError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    PausedError,
    TrioperatorError,
)

if TYPE_CHECKING:
    from trioperator._model.jsontypes import JsonObject
    from trioperator.client import Client

Report = Callable[[str], None]

#: The annotation of a CRD that says how far its migration has come.
PROGRESS: Final = "trioperator.dev/storage-migration"

_CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
# Objects after which the progress is stored: an interruption costs at most that many writes.
_STEP: Final = 100
# Attempts at a CRD that others are changing meanwhile.
_ATTEMPTS: Final = 5
# In this time, all API servers notice that a CRD has changed, which they do not report.
_NOTICE: Final = datetime.timedelta(seconds=10)
# Seconds until an operator tries again what has failed.
_RETRY: Final = 60.0

_logger = get_logger("trioperator.supervisor")


class _Progress(msgspec.Struct, frozen=True):
    """The storage *version* of a migration, the key of the last object that is done, if any, and how many *failed*."""

    version: str
    after: str | None = None
    failed: int = 0


async def migrate_stored(client: Client, name: str, *, rate: float, report: Report) -> bool:
    """Write all objects of a CRD in its storage version, at most *rate* a second, and return whether all are written.

    Then the other versions are removed from its ``status.storedVersions``. Nothing is done where there are no others.
    Where the cluster serves StorageVersionMigrations, it does all of this itself.

    *report* is called with a line for what is done, and for each object that cannot be written. The operator must run
    meanwhile if it converts the objects.

    Raises NotFoundError if there is no such CRD, ConfigError if it gets another storage version meanwhile.
    """
    crd = await client.get(_CRDS, name)
    version = _find_storage_version(crd)
    if crd["status"].get("storedVersions") == [version]:
        report(f"{name}: all objects are stored in {version}.")
        return True
    by_server = await _migrate_by_server(client, crd, report)
    if by_server is not None:
        return by_server
    progress = _read_progress(crd, version)
    if progress.after is None:
        await _wait_noticed(crd, report)
    else:
        report(f"{name}: going on after {progress.after}.")
    migration = _Migration(client, crd, progress, report=report)
    failed = await migration.run(rate)
    if failed:
        await _store_progress(client, name, None)  # begin from the beginning next time
        report(f"{name}: {failed} objects could not be written, so other versions are stored still.")
        return False
    await _prune(client, name, version)
    report(f"{name}: {migration.written} objects written; {version} is the only stored version now.")
    return True


async def migrate_declared(client: Client, names: Collection[str], *, rate: float) -> None:
    """Migrate the objects of CRDs, one CRD after the other, and log what is done. Failed ones are tried again."""
    for name in names:
        await _migrate_at_last(client, name, rate)


async def _migrate_at_last(client: Client, name: str, rate: float) -> None:
    """Migrate the objects of a CRD; retry after temporary errors."""
    while True:
        try:
            await migrate_stored(client, name, rate=rate, report=_logger.info)
        except NotFoundError:
            _logger.info("There is no CRD %s, and so nothing to migrate.", name)
        except PausedError:
            _logger.info("The migration of %s is left to others.", name)
        except TrioperatorError as error:
            why = describe_failure(error)
            _logger.warning("The objects of %s cannot be migrated, trying again in %g s: %s", name, _RETRY, why)
            await trio.sleep(_RETRY)
            continue
        return


def _find_storage_version(crd: Mapping[str, Any]) -> str:
    [version] = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
    return str(version)


def _read_progress(crd: Mapping[str, Any], version: str) -> _Progress:
    """Return how far the migration to this version has come; from the beginning if that is not readable."""
    text = (crd["metadata"].get("annotations") or {}).get(PROGRESS, "")
    try:
        progress = msgspec.json.decode(text, type=_Progress)
    except DECODE_ERRORS:
        return _Progress(version)
    return progress if progress.version == version else _Progress(version)


async def _wait_noticed(crd: Mapping[str, Any], report: Report) -> None:
    """Wait until all API servers have noticed the storage version, if the CRD has been changed just now."""
    times = [field["time"] for field in crd["metadata"].get("managedFields") or () if not field.get("subresource")]
    latest = max(times, default="")
    if not latest or wall_now() - datetime.datetime.fromisoformat(latest) < _NOTICE:
        report(
            f"{crd['metadata']['name']}: waiting for {_NOTICE.seconds} s, until all API servers have noticed the CRD."
        )
        await trio.sleep(_NOTICE.total_seconds())


async def _migrate_by_server(client: Client, crd: JsonObject, report: Report) -> bool | None:
    """Let the cluster migrate, and return whether it has succeeded; None where it cannot."""
    name = crd["metadata"]["name"]
    migration: JsonObject = {
        "apiVersion": "storagemigration.k8s.io/v1beta1",
        "kind": "StorageVersionMigration",
        "metadata": {"generateName": f"{name}-"},  # one that has failed before must not answer for this one
        "spec": {"resource": {"group": crd["spec"]["group"], "resource": crd["spec"]["names"]["plural"]}},
    }
    try:
        created = await client.create(migration)
    except NotFoundError:
        return None
    report(f"{name}: the cluster migrates, by the StorageVersionMigration {created['metadata']['name']}.")
    done = await client.wait_for(created, condition=lambda found: bool(_find_outcome(found)))
    outcome = _find_outcome(done)
    report(f"{name}: {outcome['type']}: {outcome.get('message') or outcome.get('reason') or ''}")
    return bool(outcome["type"] == "Succeeded")


def _find_outcome(migration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the condition that says how a migration has ended, empty if it has not."""
    conditions = (migration.get("status") or {}).get("conditions") or ()
    ended = (each for each in conditions if each["type"] in ("Succeeded", "Failed") and each["status"] == "True")
    return next(ended, {})


class _Migration:
    """One run through the objects of a CRD: how many were *written*, and how many failed since the beginning."""

    def __init__(self, client: Client, crd: JsonObject, progress: _Progress, *, report: Report) -> None:
        self._client = client
        self._name: str = crd["metadata"]["name"]
        self._kind = f"{crd['spec']['names']['plural']}.{progress.version}.{crd['spec']['group']}"
        self._progress = progress
        self._report = report
        self._tried = 0
        self._failed_before = progress.failed

    @property
    def written(self) -> int:
        """Objects that this run has written."""
        return self._tried - (self.failed - self._failed_before)

    @property
    def failed(self) -> int:
        """Objects that could not be written: by this run, and by those before that it goes on from."""
        return self._progress.failed

    async def run(self, rate: float) -> int:
        """Write all objects that are not done, and return how many could not be written, or read, in the whole list.

        If the server forgets the list meanwhile, list again, and go on.
        """
        began = trio.current_time()
        while True:
            pages = self._client.iterate(self._kind, all_namespaces=True)
            try:
                async for obj in pages:
                    key = "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"])))
                    if self._progress.after is None or key > self._progress.after:
                        await trio.sleep_until(began + self._tried / rate)
                        await self._write(obj, key)
            except ExpiredError:
                continue
            return self.failed + pages.left_out

    async def _write(self, obj: JsonObject, key: str) -> None:
        failed = self.failed
        try:
            await self._client.replace(obj)
        except (ConflictError, NotFoundError):
            pass  # written by somebody else, and so in the storage version; or deleted
        except ApiError as error:
            if not (isinstance(error, InvalidError) or is_denial(error) or is_always_500(error)):
                raise
            failed += 1
            self._report(f"{self._name}: {key} cannot be written: {error}")
        self._progress = msgspec.structs.replace(self._progress, after=key, failed=failed)
        self._tried += 1
        if self._tried % _STEP == 0:
            await _store_progress(self._client, self._name, self._progress)
            self._report(f"{self._name}: {self.written} objects written.")


async def _store_progress(client: Client, name: str, progress: _Progress | None) -> None:
    """Store the progress on the CRD, whose storage version must be the same still; None removes it."""
    value = None if progress is None else msgspec.json.encode(progress).decode()
    crd = await client.patch(_CRDS, name, merge={"metadata": {"annotations": {PROGRESS: value}}})
    if progress is not None:
        _check_version(crd, progress.version)


async def _prune(client: Client, name: str, version: str) -> None:
    """Remove the other versions from those that are stored, if the storage version is the same still."""
    for attempt in range(1, _ATTEMPTS + 1):
        crd = await client.get(_CRDS, name)
        _check_version(crd, version)
        metadata = {"resourceVersion": crd["metadata"]["resourceVersion"]}
        patch = {"metadata": metadata, "status": {"storedVersions": [version]}}
        try:
            await client.patch(_CRDS, name, merge=patch, subresource="status")
        except ConflictError:
            if attempt == _ATTEMPTS:
                raise
        else:
            break
    await _store_progress(client, name, None)


def _check_version(crd: Mapping[str, Any], version: str) -> None:
    found = _find_storage_version(crd)
    if found != version:
        name = crd["metadata"]["name"]
        raise ConfigError(f"The storage version of {name} is no longer {version}, but {found}: migrate again.")
