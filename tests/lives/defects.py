"""Defects that the operator has had, each as the smallest change of today's code that brings it back.

They were found by hand, in interleavings that nobody had tried. Whether lives find them by themselves shows what lives
are worth: see :mod:`tests.lives.planted`.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Edit:
    """A change of one module of the package: its *text*, which it has exactly once, becomes *planted*."""

    module: str
    text: str
    planted: str


@dataclasses.dataclass(frozen=True)
class Defect:
    """A defect. Only lives *having* all of this are lived, as others may not find it: see :meth:`Plan.has`.

    *beyond* says why lives cannot find it, if they cannot.
    """

    number: int
    name: str
    edits: tuple[Edit, ...]
    having: tuple[str, ...] = ()
    beyond: str = ""


DEFECTS = (
    Defect(
        1,
        "a pause that comes while the operator starts is ignored",
        (
            Edit(
                "_supervisor/intake.py",
                "        if is_active:\n            await self._activate(nursery, workers)\n",
                "        if is_active:\n            await workers.begin()\n",
            ),
            Edit(
                "_supervisor/intake.py",
                "        if not is_active:\n            pauses.report()\n            await pauses.wait_active()\n"
                "            await self._activate(nursery, workers)\n",
                "        if pauses.reasons:\n            pauses.report()\n            await pauses.wait_active()\n"
                "        if is_active:\n            pauses.begin(workers.period)\n"
                "            nursery.start_soon(_cancel_when, workers.period.paused, nursery.cancel_scope)\n"
                "        else:\n            await self._activate(nursery, workers)\n",
            ),
        ),
        having=("pauses", "late start"),
    ),
    Defect(
        2,
        "what handlers want is not sent if the cached body has it",
        (
            Edit(
                "_runtime/patching/sending.py",
                "            if contributions or self._needs(own, finalize):\n",
                "            if self._needs(wanted, finalize):\n",
            ),
            Edit("_model/body.py", "            own[key] = copy_json(value)\n", "            own[key] = value\n"),
        ),
        having=("changes",),
    ),
    Defect(
        3,
        "operators with the same field manager take each other's children for theirs",
        (
            Edit(
                "_reconciling/claims.py",
                '    return f"{manager if is_named(manager) else _module_of(handler.fn)}/{handler.id}"\n',
                "    return manager\n",
            ),
        ),
        having=("apart",),
    ),
    Defect(
        4,
        "patch.store() waits for ever if the object is gone",
        (
            Edit(
                "_runtime/patching/pending.py",
                "        for stored in self._waiting.pop(state, ()):\n            stored.drop()\n",
                "        self._waiting.pop(state, None)\n",
            ),
        ),
        having=("changes",),
    ),
    Defect(
        5,
        "requests that wait for a connection are sent though the lease is lost meanwhile, also by abandoned threads",
        (
            Edit("_kube/api_client.py", "connect_timeout, check=fence\n", "connect_timeout\n"),
            Edit(
                "_concurrency/threads.py",
                "    finally:\n        calls.cancel()\n",
                "    finally:\n        pass\n",
            ),
        ),
        having=("leader", "tasks"),
    ),
    Defect(
        6,
        "leases wait for connections behind all other requests",
        (
            Edit(
                "_http/connection_pool.py",
                '        """See :attr:`Transport.reserved`."""\n',
                '        """See :attr:`Transport.reserved`."""\n        return self\n',
            ),
        ),
        having=("leader", "tasks"),
    ),
    Defect(
        7,
        "old children are deleted before those that replace them, and wait, are applied",
        (
            Edit(
                "_reconciling/applying.py",
                "        self._settle(missing, schedule)\n",
                "        self._settle(missing if problems else [], schedule)\n",
            ),
        ),
        having=("ordered",),
    ),
    Defect(
        8,
        "a child that is deleted before the response to its apply counts as existing",
        (
            Edit(
                "_reconciling/related.py",
                "        if before is None and (write.relisted or record.uid in write.gone):\n",
                "        if False:\n",
            ),
        ),
        having=("children", "thieves"),
    ),
    Defect(
        9,
        "mappers and second owners do not see what the operator itself writes",
        (
            Edit(
                "_reconciling/related.py",
                "            if record.version != -1:\n                record.unseen = _merge(before, write.writer)\n",
                "",
            ),
        ),
        having=("plain",),
    ),
    Defect(
        10,
        "one namespace that cannot be listed blocks reconcile handlers in all",
        (
            Edit(
                "_reconciling/watches.py",
                "        found = [self.find_cache(namespace)] if namespace else list(self.caches.values())\n",
                "        found = list(self.caches.values())\n",
            ),
            Edit(
                "_reconciling/watches.py",
                "            del self.caches[namespace]\n        self.completed()\n",
                "            del self.caches[namespace]\n",
            ),
        ),
        having=("rights",),
    ),
    Defect(
        11,
        "a child in a namespace that is not served yet is a permanent error",
        (
            Edit(
                "_reconciling/preparing.py",
                '        namespace = metadata.get("namespace") or ""\n        version',
                '        namespace = metadata.get("namespace") or ""\n'
                "        if kind.find_cache(namespace) is None:\n"
                '            raise ConfigError(f"{name} is in the namespace {namespace}, which is not served")\n'
                "        version",
            ),
        ),
        having=("places",),
    ),
    Defect(
        12,
        "a handler deletes the children of another one whose filter no longer matches",
        (
            Edit(
                "_reconciling/schedules.py",
                "(schedule.children.kept for schedule in self), *self._former.values())\n",
                "(schedule.children.kept for schedule in self))\n",
            ),
            Edit(
                "_reconciling/pruning.py",
                "        if record.claim in absent:\n            return False  #",
                "        if record.claim in absent:\n"
                "            place = _key_of(kind, record).place\n"
                "            return all(own.children.has_settled_without(place) for own in owners)  #",
            ),
        ),
        having=("filtered",),
    ),
    Defect(
        13,
        "any conflict on the deletion of a child counts as its end",
        (
            Edit(
                "_reconciling/pruning.py",
                "        if not is_about_uid(error):\n            raise\n    kind",
                "        pass\n    kind",
            ),
        ),
        having=("children", "protection"),
    ),
    Defect(
        14,
        "nothing is created again that a quota counts",
        (
            Edit(
                "_reconciling/recreating.py",
                "        if not _is_counted(error.message):\n            raise\n",
                "        raise\n",
            ),
        ),
        having=("fixed",),
    ),
    Defect(
        15,
        "what is older than the cached version counts as unchanged, after a restore of etcd, too",
        (
            Edit(
                "_runtime/watching/position.py",
                "        return 0 < int(version) < max(int(self.newest), written)",
                "        return False",
            ),
            Edit(
                "_runtime/cache/cache.py",
                "        if type is None and version < state.seen_version:\n"
                "            self._go_back(state, was_leaving=was_leaving)\n",
                "",
            ),
            Edit(
                "_runtime/patching/patcher.py",
                "        if _is_restored(state, version, sender.body):\n"
                "            state.cache.versions.on_restored()\n",
                "",
            ),
        ),
        having=("restore",),
    ),
    Defect(
        16,
        "an object is handled in two versions of its kind at the same time",
        (
            Edit(
                "_runtime/cache/succession.py",
                "        if self._at_work.setdefault(state.uid, state) is state:\n",
                "        if True:\n",
            ),
            Edit(
                "_runtime/cache/succession.py",
                "        del self._at_work[state.uid]\n",
                "        self._at_work.pop(state.uid, None)\n",
            ),
        ),
        having=("versions",),
    ),
    Defect(
        17,
        "a new leader trusts watches that lag behind",
        (
            Edit(
                "_runtime/reconciler/takeover.py",
                "        if not self._versions or state in self._verified:\n            return False\n",
                "        return False\n",
            ),
        ),
        having=("changes", "retire"),
    ),
    Defect(
        18,
        "daemons that have ended are called again after a pause",
        (
            Edit(
                "_supervisor/tree.py",
                "                memories = workers.manager.remember(memories)",
                "                kept = workers.manager.remember(memories)\n"
                "                memories = {key: Memory(each.memo, each.initial) for key, each in kept.items()}",
            ),
        ),
        having=("background", "pauses"),
    ),
    Defect(
        19,
        "finalizers stay where the handlers have gone that need them",
        (
            Edit(
                "_runtime/reconciler/change_reconciler.py",
                "        if finalized and not state.cache.kind.retired:",
                "        if False:",
            ),
        ),
        having=("upgrades",),
    ),
    Defect(
        20,
        "threads that wait in the operator's client are not interrupted",
        (
            Edit(
                "_concurrency/threads.py",
                "    finally:\n        calls.cancel()\n",
                "    finally:\n        pass\n",
            ),
        ),
        having=("waiting",),
    ),
    Defect(
        21,
        "a deletion without a response is repeated, whatever has the name by then",
        (
            Edit(
                "_kube/retry.py",
                '            case "DELETE":\n',
                '            case "DELETE":\n                return True\n',
            ),
            Edit("client/deleting.py", "        if self._uid is not None:\n", "        if False:\n"),
        ),
        having=("scripts", "writes"),
    ),
    Defect(
        22,
        "a JSON patch without a response is applied again",
        (
            Edit(
                "_kube/retry.py",
                '                return _is_guarded(_decode_patch(body or b""))\n',
                "                return True\n",
            ),
        ),
        having=("scripts", "writes"),
    ),
    Defect(
        23,
        "wait_deleted() waits for the end of the successor, too",
        (
            Edit(
                "client/reading.py",
                "            if found is None or found.uid != (uid or found.uid):\n",
                "            if found is None:\n",
            ),
        ),
        having=("scripts",),
    ),
    Defect(
        24,
        "a watch of the client breaks where reading it is cancelled",
        (
            Edit("client/watching.py", "            self._is_interrupted = True  #", "            pass  #"),
            Edit(
                "_http/connection_pool.py",
                "        except trio.Cancelled:  # nothing was received, so the next call goes on\n",
                "        except trio.Cancelled:\n            self._drop()\n",
            ),
        ),
        having=("scripts",),
    ),
    Defect(
        25,
        "a watch of the client that expires begins anew without a delay",
        (
            Edit(
                "client/watching.py",
                '        log("%s is listed again in %g s: %s", self._path, delay, error)\n'
                "        self._due_at = trio.current_time() + delay\n",
                "",
            ),
        ),
        having=("scripts", "watches"),
    ),
    Defect(
        26,
        "errors on the way to children are not tried again",
        (
            Edit(
                "_reconciling/level_reconciler.py",
                "        except Exception as error:  # noqa: BLE001 -- whatever it is, the handler is due again\n",
                "        except (TrioperatorError, TypeError, ValueError) as error:\n",
            ),
            Edit(
                "_reconciling/level_reconciler.py",
                "from trioperator.errors import ConfigError, PausedError\n",
                "from trioperator.errors import ConfigError, PausedError, TrioperatorError\n",
            ),
            Edit(
                "_reconciling/preparing.py",
                '    if body.get("metadata") is None:\n        body["metadata"] = {}\n    metadata',
                '    return body.setdefault("metadata", {})\n    metadata',
            ),
        ),
        having=("garbled",),
    ),
    Defect(
        27,
        "an operator stays active though its keep-alive has had no response",
        (
            Edit(
                "_coordination/peering.py",
                "        self._own.store(now, expires_at=began + settings.lifetime - margin)\n",
                "        self._own.store(now, expires_at=math.inf)\n",
            ),
            Edit(
                "_coordination/peering.py",
                "                with trio.fail_after(self._timeout):\n",
                "                with trio.fail_after(math.inf):\n",
            ),
        ),
        having=("slow peering",),
    ),
    Defect(
        28,
        "the duration of leases is rounded after it was checked",
        (Edit("_coordination/lease.py", "math.ceil(self._duration)", "round(self._duration)"),),
        having=("leader", "slow leases"),
    ),
    Defect(
        29,
        "what is due by the clock is late where that is set forward",
        (
            Edit(
                "_runtime/daemons/alarm_clock.py",
                "            self._look_at_wall()\n",
                "",
            ),
        ),
        having=("background", "clock"),
    ),
    Defect(
        30,
        "retries are late where the clock is set back",
        (
            Edit(
                "_concurrency/clock.py",
                "    try:\n        clocks = _clocks.get()  # without one call more",
                "    return wall_now()\n    try:\n        clocks = _clocks.get()  # without one call more",
            ),
        ),
        having=("changes", "clock"),
    ),
    Defect(
        31,
        "the first signal after the stop flag ends the operator at once",
        (
            Edit(
                "_supervisor/signals.py",
                "        if self._seen >= 2:\n",
                "        if self._seen >= 2 or self._shutdown.requested.is_set():\n",
            ),
        ),
        beyond="signals need a process of their own: tests/processes",
    ),
    Defect(
        32,
        "a stop flag of threads leaves a thread behind",
        (
            Edit(
                "_supervisor/shutdown.py",
                "        while is_awaited and not flag.wait(_FLAG_PATIENCE):\n            pass\n",
                "        flag.wait()\n",
            ),
        ),
    ),
    Defect(
        33,
        "two leaders after a restore of etcd, as its Lease is believed",
        (Edit("_coordination/lease.py", "        return self._age < self._newest\n", "        return False\n"),),
        having=("leader", "restore"),
    ),
    Defect(
        34,
        "conditions that may not be written are tried again with each object at once",
        (
            Edit(
                "_kube/status_schemas.py",
                "        self._denied[resource] = trio.current_time() + _DENIAL\n",
                "        self._denied[resource] = trio.current_time()\n",
            ),
        ),
        beyond="no trouble takes the right to the status alone away: tests/reconciling/test_kstatus.py",
    ),
    Defect(
        35,
        "records count again after a rollback, where another release has handled a change and its reversal",
        (
            Edit(
                "_runtime/progress/records.py",
                "        if self.may_exist(body):\n            self._progress.purge_based(body=body, patch=patch)\n",
                "",
            ),
        ),
        having=("changes", "rollbacks"),
    ),
    Defect(
        36,
        "objects are deleted while a daemon that was spawned in another version of their kind is ending",
        (
            Edit(
                "_runtime/daemons/daemon.py",
                "for daemon in (*self.running.values(), *self.others) if not daemon.ended.is_set()\n        )\n",
                "for daemon in self.running.values()\n        )\n",
            ),
        ),
        having=("background", "versions"),
    ),
    Defect(
        37,
        "a change is taken back, and the handler does not see that which was called for it and has not ended",
        (Edit("_runtime/progress/last_handled.py", "        self._missed = current\n", ""),),
        having=("changes", "reversals"),
    ),
    Defect(
        38,
        "changes are not handled while there is no room for records",
        (
            Edit(
                "_runtime/reconciler/completion.py",
                "            if is_invalid(error):  # annotations are full, say: what comes next is handled\n",
                "            if False:\n",
            ),
        ),
        having=("changes", "fillings"),
    ),
    Defect(
        39,
        "what handlers have seen is not stored where the progress is in a storage of a user's",
        (
            Edit(
                "_handling/storages/seen.py",
                "    for beside in (progress, diffbase):\n",
                "    for beside in (progress,):\n",
            ),
        ),
        having=("stops", "own storage"),
    ),
    Defect(
        40,
        "what an attempt has seen that a stop has interrupted is not stored",
        (
            Edit(
                "_runtime/progress/progress.py",
                "        if progress is None or not mark:\n",
                "        if True:\n",
            ),
        ),
        having=("stops",),
    ),
    Defect(
        41,
        "the shard that is drained when etcd is restored is acquired by another replica meanwhile",
        (
            Edit(
                "_coordination/shards.py",
                "            elif term is not None and term.is_served and",
                "            elif term is not None and not term.ending.is_set() and",
            ),
        ),
        having=("changes", "shards", "restore"),
    ),
    Defect(
        42,
        "a daemon ends after another version has taken over what is remembered, and is called again",
        (
            Edit(
                "_runtime/cache/cache.py",
                "        before._successor = self\n",
                "",
            ),
        ),
        having=("background", "versions"),
    ),
    Defect(
        43,
        "a reconcile handler fails for good as the kind of its children is gone when it returns them",
        (
            Edit(
                "_reconciling/level_reconciler.py",
                "        if not self._watches.is_complete(handler, state.namespace):\n            return Outcome",
                "        if False:\n            return Outcome",
            ),
        ),
        having=("trees",),
    ),
    Defect(
        44,
        "what others have changed is shown to a handler that stores, and taken back before it has ended",
        (
            Edit(
                "_runtime/execution/execution.py",
                "            self._note_other(cause.body._raw, expected)\n",
                "",
            ),
        ),
        having=("stops",),
    ),
)
