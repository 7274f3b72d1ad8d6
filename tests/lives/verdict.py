"""The verdict at the end of a life, beside those of its parts: calls that hang, broken promises, lost leaders."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from tests.lives.journal import Promise

if TYPE_CHECKING:
    from tests.lives.life import Life

# Seconds that no call of a handler lasts, daemons aside, when all is quiet; that one takes which fails; and after which
# what cannot be listed is listed again.
_LONGEST, _LONGEST_CALL, _LONGEST_BACKOFF = 120.0, 5.0, 30.0


async def judge(life: Life) -> None:
    """Note in the journal what should not be when all has settled."""
    now = trio.current_time()
    for call in [call for call in life.journal.running if not call.handler.startswith("endless")]:
        # Threads live in real time, and a quiet minute takes none: one that was interrupted may have to return yet.
        if now - call.started > _LONGEST and not (call.is_sync and call.returned.wait(1)):
            life.journal.find("hang", f"{call.handler} of {call.name} has been running since {call.started:.3f}")
    all_are_slow = any(step.deed == "slow" and not step.args[0] for step in life.plan.steps)
    are_held = any(ambush.pause > 1 for ambush in life.plan.ambushes)
    # The lease of the backup may be held by an operator that has been replaced since.
    is_taken_back = life.has("restore") and life.has("rollout")
    if not (all_are_slow or are_held or is_taken_back) and not life.has(
        "lease", "slow leases", "restart", "freeze", "reads", "writes", "denials", "logins"
    ):
        lost = [text for _, _, text in life.journal.messages if "leadership is lost" in text]
        if lost:
            life.journal.find("lost leadership", f"{len(lost)} times, though the lease could be renewed")
    _check_restores(life)
    # Nothing is handled while the credentials are not accepted.
    if life.plan.together == "alone" and not life.has("restart", "holds", "logins") and not life.is_tuned("failing"):
        _check_promises(life)


def _check_restores(life: Life) -> None:
    """Find what the log says of restored clusters, if none was."""
    said = [text for _, _, text in life.journal.messages if "gone back" in text]
    if said and not life.has("restore"):
        life.journal.find("false restore", said[0])


def _check_promises(life: Life) -> None:
    """Find what was to be tried again, and was not, unless a restore has taken back what it was for."""
    operator = life.operators["a"]
    restored = max((time for time, _, text in life.journal.messages if "gone back" in text), default=-math.inf)
    slack = 40 if life.has("reads") else 10  # the client may repeat requests for half a minute before it tells
    for promise in life.journal.promises:
        end = promise.made + promise.seconds + slack
        if _is_taken_back(life, promise, end):  # all lists succeed soon after the trouble is over, and then it counts
            end = max(end, life.end + _LONGEST_BACKOFF + slack) if not life.forbidden else math.inf
        if promise.made < max(operator.started, restored) or end > trio.current_time():
            continue
        calls = [call for call in life.journal.calls if call.name == promise.name]
        later = life.journal.calls[promise.calls :]
        began = [call for call in later if call.name == promise.name and call.started <= end]
        busy = [call for call in calls if call.started <= promise.made and (call.ended or end) > promise.made]
        said = [text for time, _, text in life.journal.messages[promise.messages :] if time <= end]
        if any(text.startswith(f"{promise.name}: ") for text in said) or _is_kept_by_write(life, promise, end):
            continue
        if calls and not began and not busy and promise.name not in life.journal.gone | life.stolen:
            life.journal.find("broken promise", f"{promise.name}: {promise.text}; and nobody was called by {end:.3f}")


def _is_kept_by_write(life: Life, promise: Promise, end: float) -> bool:
    """Return whether an object that could not be handled was written: perhaps it lacked the finalizer, and no more.

    Or it was handled, and only that could not be recorded.
    """
    if "could not be handled" not in promise.text and "could not be recorded" not in promise.text:
        return False
    return any(name == promise.name and promise.made < time <= end for time, name in life.journal.writes)


def _is_taken_back(life: Life, promise: Promise, end: float) -> bool:
    """Return whether the log says that handlers are not called until something is listed, as related kinds must be."""
    since = promise.made - _LONGEST_CALL  # the call may have begun before
    texts = [text for time, _, text in life.journal.messages if since <= time <= end]
    return any("Cannot list" in text and "are not called until" in text for text in texts)
