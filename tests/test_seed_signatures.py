"""Names, signatures and defaults of Kopf's documentation: all exist, but for Kopf's internals and asyncio."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import trioperator as kopf
from trioperator import cli

SELECTOR = "group version kind plural singular shortcut category"
FILTERS = "labels annotations when"
ATTEMPTS = "id param errors timeout retries backoff"
DECORATORS = {
    "startup cleanup login probe": f"{ATTEMPTS} registry",
    "validate mutate": f"{SELECTOR} id param operation operations subresource persistent side_effects ignore_failures"
    f" {FILTERS} field value registry",
    "resume": f"{SELECTOR} {ATTEMPTS} deleted {FILTERS} field value registry",
    "create index": f"{SELECTOR} {ATTEMPTS} {FILTERS} field value registry",
    "update field": f"{SELECTOR} {ATTEMPTS} {FILTERS} field value old new registry",
    "delete": f"{SELECTOR} {ATTEMPTS} optional {FILTERS} field value registry",
    "event": f"{SELECTOR} id param {FILTERS} field value registry",
    "daemon": f"{SELECTOR} {ATTEMPTS} initial_delay cancellation_backoff cancellation_timeout cancellation_polling"
    f" {FILTERS} field value registry",
    "timer": f"{SELECTOR} {ATTEMPTS} interval initial_delay sharp idle {FILTERS} field value registry",
    "subhandler": f"{ATTEMPTS} {FILTERS} field value old new",
    "register": f"{ATTEMPTS} {FILTERS}",
}
WEBHOOK_SERVER = (
    "*, addr=None, port=None, path=None, host=None, cadata=None, cafile=None, cadump=None, context=None,"
    " insecure=False, certfile=None, pkeyfile=None, password=None, extra_sans=(), verify_mode=None, verify_cafile=None,"
    " verify_capath=None, verify_cadata=None"
)
#: Without Kopf's internal objects, and the loops of asyncio.
OPERATOR = (
    "*, lifecycle=None, registry=None, settings=None, identity=None, standalone=None, priority=None, peering_name=None,"
    " liveness_endpoint=None, clusterwide=False, namespaces=(), namespace=None, stop_flag=None, ready_flag=None,"
    " memo=None"
)
SIGNATURES = {
    "execute": "*, fns=None, handlers=None, registry=None, lifecycle=None, cause=None",
    "configure": "debug=None, verbose=None, quiet=None, log_format=LogFormat.FULL, log_prefix=False, log_refkey=None",
    "operator": OPERATOR,
    "ConnectionInfo": "server, ca_path=None, ca_data=None, insecure=None, username=None, password=None, scheme=None,"
    " token=None, certificate_path=None, certificate_data=None, private_key_path=None, private_key_data=None,"
    " default_namespace=None, priority=0, expiration=None",
    "event": "objs, *, type, reason, message=''",
    "info": "objs, *, reason, message=''",
    "warn": "objs, *, reason, message=''",
    "exception": "objs, *, reason='', message='', exc=None",
    "adopt": "objs, owner=None, *, forced=False, strict=False, nested=None",
    "label": "objs, labels=None, *, forced=False, nested=None, force=None",
    "harmonize_naming": "objs, name=None, *, forced=False, strict=False",
    "adjust_namespace": "objs, namespace=None, *, forced=False",
    "append_owner_reference": "objs, owner=None, *, controller=True, block_owner_deletion=True",
    "remove_owner_reference": "objs, owner=None",
    "build_object_reference": "body",
    "build_owner_reference": "body, *, controller=True, block_owner_deletion=True",
    "set_default_lifecycle": "lifecycle",
    "set_default_registry": "registry",
    "get_default_registry": "",
    "AdmissionError": "message='', code=500",
    "WebhookServer": WEBHOOK_SERVER,
    "WebhookK3dServer": WEBHOOK_SERVER,
    "WebhookMinikubeServer": WEBHOOK_SERVER,
    "WebhookDockerDesktopServer": WEBHOOK_SERVER,
    "WebhookAutoServer": "*, addr=None, port=None, path=None",
    "WebhookAutoTunnel": "*, addr=None, port=None, path=None",
    "WebhookNgrokTunnel": "*, addr=None, port=None, path=None, token=None, region=None, binary=None",
    # The prefixes and names are those of trioperator.
    "AnnotationsDiffBaseStorage": "*, prefix='trioperator.dev', key='last-handled-configuration', v1=True",
    "StatusDiffBaseStorage": "*, name='trioperator', field='status.{name}.last-handled-configuration'",
    "MultiDiffBaseStorage": "storages",
    "AnnotationsProgressStorage": "*, prefix='trioperator.dev', verbose=False, touch_key='touch-dummy', v1=True",
    "StatusProgressStorage": "*, name='trioperator', field='status.{name}.progress', touch_field='status.{name}.dummy'",
    "MultiProgressStorage": "storages",
    "SmartProgressStorage": "*, name='trioperator', field='status.{name}.progress', touch_key='touch-dummy',"
    " touch_field='status.{name}.dummy', prefix='trioperator.dev', v1=True, verbose=False",
    "DiffBaseStorage.build": "self, *, body, extra_fields=None",
    "DiffBaseStorage.fetch": "self, *, body",
    "DiffBaseStorage.store": "self, *, body, patch, essence",
    "ProgressStorage.fetch": "self, *, key, body",
    "ProgressStorage.store": "self, *, key, record, body, patch",
    "ProgressStorage.purge": "self, *, key, body, patch",
    "ObjectLogger": "*, body, settings",
    "LocalObjectLogger": "*, body, settings",
    "DiffItem": "operation, field, old, new",
    "Patch": "body=None",
    "Resource": "group, version, plural, kind=None, singular=None, shortcuts=frozenset(), categories=frozenset(),"
    " subresources=frozenset(), namespaced=None, preferred=True, verbs=frozenset()",
    "Resource.get_url": "self, *, server=None, namespace=None, name=None, subresource=None, params=None",
    "login_via_client": "*, logger",
    "login_via_pykube": "*, logger",
    "login_with_kubeconfig": "",
    "login_with_service_account": "",
}
NAMES = (
    "ABSENT PRESENT EVERYTHING Annotations Body BodyEssence Diff DiffOperation DaemonStoppingReason DaemonStopped"
    " ErrorsMode FieldPath FieldSpec HandlerRetriesError HandlerTimeoutError Headers Index Labels LogFormat Logger"
    " LoginError Memo Meta ObjectReference Operation OperatorRegistry OperatorSettings OwnerReference PermanentError"
    " ProgressRecord RawBody RawEvent RawEventType Reason SSLPeer Spec Status Store TemporaryError UserInfo"
    " WebhookClientConfig WebhookClientConfigService WebhookFn WebhookServerProtocol all_ any_ none_ not_ daemon index"
    " lifecycles on register run subhandler timer get_default_lifecycle AsyncDaemonStopperChecker"
    " SyncDaemonStopperChecker"
)
SETTINGS = {
    "process": "",
    "posting": "enabled loggers level",
    "peering": "name stealth priority lifetime mandatory standalone",
    "watching": "server_timeout client_timeout connect_timeout reconnect_backoff inactivity_timeout",
    "batching": "worker_limit error_delays",
    "queueing": "worker_limit error_delays",
    "scanning": "disabled",
    "admission": "server managed",
    "execution": "executor max_workers default_backoff",
    "background": "cancellation_polling",
    "networking": "request_timeout connect_timeout trust_env error_backoffs enforce_retry_after",
    "persistence": "finalizer progress_storage diffbase_storage consistency_timeout",
}
LIFECYCLES = "all_at_once one_by_one randomized shuffled asap"
COMMANDS = {
    "run": "-m --module -v --verbose -d --debug -q --quiet --log-format --log-prefix --no-log-prefix --log-refkey -n"
    " --namespace -A --all-namespaces -L --liveness --standalone -P --peering -p --priority --dev",
    "freeze": "-n --namespace -A --all-namespaces -i --id --dev -P --peering -p --priority -t --lifetime -m --message",
    "resume": "-n --namespace -A --all-namespaces -i --id -P --peering",
}


def resolve(path: str) -> Any:
    """Return what is at the path in the package."""
    found: Any = kopf
    for name in path.split("."):
        found = getattr(found, name)
    return found


def accepted(fn: Callable[..., Any]) -> set[str]:
    """Return the names of the options of a function, with those of its ``**options: Unpack[...]``."""
    names: set[str] = set()
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            hints = typing.get_type_hints(fn)[parameter.name]
            (options,) = typing.get_args(hints)
            names |= set(typing.get_type_hints(options))
        else:
            names.add(parameter.name)
    return names


def compare(path: str, declared: str) -> Iterable[str]:
    """Yield how a signature differs from the declared one; it may have more options."""
    parameters = inspect.signature(resolve(path)).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    before, _, after = declared.partition("*")
    positional = [part.strip() for part in before.split(",") if part.strip()]
    keyword_only = [part.strip() for part in after.lstrip(", ").split(", ") if part.strip()]
    for text in (*positional, *keyword_only):
        name, has_default, default = text.partition("=")
        found = parameters.get(name)
        if found is None:
            if not (takes_all and name in ("logger",)):
                yield f"{path} has no {name}"
            continue
        if text in positional and found.kind is found.KEYWORD_ONLY:
            yield f"{path} takes {name} by its name only"
        shown = str(found.default) if isinstance(found.default, enum.Enum) else repr(found.default)
        if has_default and shown != default:
            yield f"{path} has {name}={shown} instead of {default}"


@pytest.mark.parametrize("path", SIGNATURES)
def test_signatures_and_defaults_are_those_of_the_documentation(path: str) -> None:
    assert list(compare(path, SIGNATURES[path])) == []


@pytest.mark.parametrize("names", DECORATORS)
def test_decorators_have_all_documented_options(names: str) -> None:
    for name in names.split():
        assert set(DECORATORS[names].split()) - accepted(getattr(kopf.on, name)) == set()


@pytest.mark.parametrize("name", ["daemon", "index", "register", "subhandler", "timer"])
def test_some_decorators_have_two_names(name: str) -> None:
    assert getattr(kopf, name) is getattr(kopf.on, name)


@pytest.mark.parametrize("name", NAMES.split())
def test_all_other_documented_names_exist(name: str) -> None:
    assert hasattr(kopf, name)


@pytest.mark.parametrize("section", SETTINGS)
def test_all_documented_settings_exist(section: str) -> None:
    settings = getattr(kopf.OperatorSettings(), section)
    assert set(SETTINGS[section].split()) - {field.name for field in dataclasses.fields(settings)} == set()


def test_all_documented_lifecycles_exist() -> None:
    assert [name for name in LIFECYCLES.split() if not callable(getattr(kopf.lifecycles, name, None))] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_all_documented_options_of_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    shown = set(capsys.readouterr().out.replace(",", " ").replace("/", " ").split())
    assert set(COMMANDS[command].split()) - shown == set()
