"""Names of Kopf that do not exist here."""

from __future__ import annotations

import importlib
from typing import Final

import pytest

import trioperator
from trioperator._model.kopf_names import _MISSING


@pytest.mark.parametrize("module", ["trioperator", "trioperator.on"])
@pytest.mark.parametrize("name", ["AiohttpSession", "KopfRunner", "spawn_tasks"])
def test_a_missing_name_of_kopf_is_explained(module: str, name: str) -> None:
    with pytest.raises(AttributeError, match=f"^Kopf's {name} does not exist"):
        getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("module", ["trioperator", "trioperator.on"])
def test_other_names_are_unknown_as_in_any_module(module: str) -> None:
    with pytest.raises(AttributeError, match=f"^module '{module}' has no attribute 'nothing'"):
        getattr(importlib.import_module(module), "nothing")  # noqa: B009


#: What ``from kopf import *`` imports, in Kopf 1.45.
KOPF: Final = """
ABSENT AdmissionError AiohttpSession Annotations AnnotationsDiffBaseStorage AnnotationsProgressStorage
AsyncDaemonStopperChecker Body BodyEssence ConnectionInfo DaemonStopped DaemonStoppingReason Diff DiffBaseStorage
DiffItem DiffOperation EVERYTHING ErrorsMode FieldPath FieldSpec HandlerId HandlerRetriesError HandlerTimeoutError
Headers Index Labels LocalObjectLogger LogFormat Logger LoginError Memo Meta MultiDiffBaseStorage MultiProgressStorage
ObjectLogger ObjectReference Operation OperatorRegistry OperatorSettings OwnerReference PRESENT Patch PatchFn
PermanentError ProgressRecord ProgressStorage RawBody RawEvent RawEventType Reason Resource SSLPeer SmartProgressStorage
Spec Status StatusDiffBaseStorage StatusProgressStorage Store SyncDaemonStopperChecker TemporaryError UserInfo
WebhookAutoServer WebhookAutoTunnel WebhookClientConfig WebhookClientConfigService WebhookDockerDesktopServer WebhookFn
WebhookK3dServer WebhookMinikubeServer WebhookNgrokTunnel WebhookServer WebhookServerProtocol adopt all_ any_
append_owner_reference build_object_reference build_owner_reference configure daemon event exception execute
get_default_lifecycle get_default_registry index info label lifecycles login_via_async_client login_via_client
login_via_pykube login_with_kubeconfig login_with_service_account none_ not_ on operator register
remove_owner_reference run run_tasks set_default_lifecycle set_default_registry spawn_tasks subhandler timer warn
""".split()  # noqa: SIM905 -- a list of so many would take a page


def test_the_names_of_kopf_exist() -> None:
    expected = [name for name in KOPF if name not in _MISSING]
    assert [name for name in expected if name not in trioperator.__all__] == []
    assert [name for name in expected if getattr(trioperator, name, None) is None] == []


def test_no_name_is_called_missing_that_exists() -> None:
    assert [name for name in _MISSING if name in trioperator.__all__] == []


def test_attributes_can_be_asked_for() -> None:
    assert not hasattr(trioperator, "KopfRunner")
    assert getattr(trioperator, "KopfRunner", None) is None


def test_names_that_are_loaded_on_first_use_are_listed() -> None:
    assert set(trioperator.__all__) <= set(dir(trioperator))
