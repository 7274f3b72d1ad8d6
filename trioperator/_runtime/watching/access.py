"""Optional permissions of the operator, checked by access reviews rather than by trying."""

from __future__ import annotations

import contextlib
from typing import Final

import trio

from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator.errors import ForbiddenError, TrioperatorError

_NAMESPACES: Final = "/api/v1/namespaces"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MISSING: Final = "Namespaces are not watched, which is not needed for exact names"


async def may_list_namespaces(client: ApiClient, *, patience: float) -> bool:
    """Return whether namespaces may be listed; True if there is no response within the timeout.

    The rights are asked for first: forbidden requests set off alarms about the audit logs of clusters.
    """
    client = client.retrying(())
    with trio.move_on_after(patience):
        with contextlib.suppress(TrioperatorError, LookupError, TypeError):  # clusters can be without these reviews
            if not await _ask(client, verb="list", resource="namespaces"):
                get_logger("trioperator.runtime").info("%s: the role does not allow to list them.", _MISSING)
                return False
        return await _try(client)
    return True


async def _ask(client: ApiClient, **attributes: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    unfenced = client.fenced(lambda: None)  # a standby may ask, too: nothing is changed
    return bool((await unfenced.post(_REVIEWS, review))["status"]["allowed"])


async def _try(client: ApiClient) -> bool:
    try:
        await client.list_page(_NAMESPACES, limit=1)
    except ForbiddenError as error:
        get_logger("trioperator.runtime").info("%s: %s", _MISSING, error)
        return False
    except TrioperatorError:
        pass  # it is reported when they are observed
    return True
