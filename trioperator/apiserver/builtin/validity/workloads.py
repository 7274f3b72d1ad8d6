"""Validation of workloads, autoscalers and disruption budgets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...model.selectors import selector_of
from ...model.status_causes import StatusCause, invalid_value, required, unsupported
from .common import check_choice, check_label_selector, check_not_negative, forbidden_field, items
from .configuration import check_claim_spec
from .pods import check_pod_spec
from .schedules import check_schedule, check_time_zone

Object = Mapping[str, Any]

_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
_MISMATCH: Final = "`selector` does not match template `labels`"


def check_deployment(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    yield from check_not_negative(spec, "spec", "replicas")
    yield from _check_selector_and_template(spec, "deployment")
    yield from _check_strategy(spec["strategy"], "spec.strategy")
    yield from check_not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    if (deadline := spec.get("progressDeadlineSeconds")) is not None and deadline <= (spec.get("minReadySeconds") or 0):
        yield invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _check_strategy(strategy: Object, path: str) -> Iterable[StatusCause]:
    rolling: Object | None = strategy.get("rollingUpdate")
    match strategy["type"]:
        case "Recreate":
            if rolling is not None:
                text = "may not be specified when strategy `type` is 'Recreate'"
                yield forbidden_field(f"{path}.rollingUpdate", text)
        case "RollingUpdate" if rolling is not None:
            zeros = {0, "0", "0%"}
            if rolling["maxUnavailable"] in zeros and rolling["maxSurge"] in zeros:
                field = f"{path}.rollingUpdate.maxUnavailable"
                yield invalid_value(field, rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0")
        case name:
            yield unsupported(path, {"Type": name, "RollingUpdate": None}, ("Recreate", "RollingUpdate"))


def check_replica_set(obj: Object) -> Iterable[StatusCause]:
    yield from check_not_negative(obj["spec"], "spec", "replicas", "minReadySeconds")
    yield from _check_selector_and_template(obj["spec"], "deployment")


def check_replication_controller(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    yield from check_not_negative(spec, "spec", "replicas", "minReadySeconds")
    if labels := spec.get("selector"):
        yield from _check_selector_and_template({**spec, "selector": {"matchLabels": labels}}, "replicationcontroller")
    else:
        yield required("spec.selector")


def check_daemon_set(obj: Object) -> Iterable[StatusCause]:
    yield from _check_selector_and_template(obj["spec"], "daemonset")
    yield from check_not_negative(obj["spec"], "spec", "minReadySeconds", "revisionHistoryLimit")


def check_stateful_set(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    yield from check_choice(spec, "spec", "podManagementPolicy", ("OrderedReady", "Parallel"))
    yield from check_not_negative(spec, "spec", "replicas", "minReadySeconds")
    yield from _check_selector_and_template(_with_claims_as_volumes(spec), "statefulset")
    for where, claim in items(spec, "volumeClaimTemplates", "spec"):
        yield from check_claim_spec(claim["spec"], f"{where}.spec")


def _with_claims_as_volumes(spec: Object) -> Object:
    """Return the spec as its Pods will have it: each claim template is a volume, in place of one of the same name."""
    names = list(
        dict.fromkeys(claim["metadata"].get("name") or "" for _, claim in items(spec, "volumeClaimTemplates", ""))
    )
    if not names:
        return spec
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    others = [volume for _, volume in items(pod, "volumes", "") if volume.get("name") not in names]
    return {**spec, "template": {**template, "spec": {**pod, "volumes": [*claims, *others]}}}


def _check_selector_and_template(spec: Object, name: str) -> Iterable[StatusCause]:
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    path = "spec.template"
    if selector is None:
        yield required("spec.selector")
        yield invalid_value(f"{path}.metadata.labels", labels, _MISMATCH)
    else:
        causes = list(check_label_selector(selector, "spec.selector"))
        yield from causes
        if not any(selector.values()):
            yield invalid_value("spec.selector", {}, f"empty selector is invalid for {name}")
        if causes:
            yield invalid_value("spec.selector", selector, "invalid label selector")
            return
        if not selector_of(selector).matches({"metadata": {"labels": labels}}):
            yield invalid_value(f"{path}.metadata.labels", labels, _MISMATCH)
    pod = template.get("spec") or {}
    yield from check_pod_spec(pod, f"{path}.spec")
    if pod.get("restartPolicy", "Always") in {"Never", "OnFailure"}:
        yield unsupported(f"{path}.spec.restartPolicy", pod["restartPolicy"], ("Always",))
    if "activeDeadlineSeconds" in pod:
        yield forbidden_field(f"{path}.spec.activeDeadlineSeconds", f"activeDeadlineSeconds in {name} is not Supported")


# -- jobs ----------------------------------------------------------------------------------------------------------


def check_job(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    selector, labels = spec.get("selector"), (spec["template"].get("metadata") or {}).get("labels")
    if not spec.get("manualSelector") and (selector or {}).get("matchLabels", {}).keys() - {CONTROLLER_UID}:
        yield invalid_value("spec.selector", selector, "`selector` not auto-generated")
    yield from _check_job_spec(spec, "spec")
    if selector is None:
        yield required("spec.selector")
    elif causes := list(check_label_selector(selector, "spec.selector")):
        yield from causes
        return
    if selector is None or not selector_of(selector).matches({"metadata": {"labels": labels}}):
        yield invalid_value("spec.template.metadata.labels", labels, _MISMATCH)


def _check_job_spec(spec: Object, path: str) -> Iterable[StatusCause]:
    counts = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    yield from check_not_negative(spec, path, *counts)
    yield from check_choice(spec, path, "completionMode", ("NonIndexed", "Indexed"))
    pod = spec["template"].get("spec") or {}
    where = f"{path}.template.spec"
    yield from check_pod_spec(pod, where)
    if pod.get("restartPolicy", "Always") == "Always":
        yield required(f"{where}.restartPolicy", 'valid values: "OnFailure", "Never"')


def check_cron_job(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    yield from check_schedule(spec.get("schedule") or "", "spec.schedule")
    yield from check_not_negative(spec, "spec", "startingDeadlineSeconds")
    if (zone := spec.get("timeZone")) is not None:
        yield from check_time_zone(zone, "spec.timeZone")
    yield from check_choice(spec, "spec", "concurrencyPolicy", _CONCURRENCY)
    yield from check_not_negative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    job, path = spec["jobTemplate"]["spec"], "spec.jobTemplate.spec"
    yield from _check_job_spec(job, path)
    if (selector := job.get("selector")) is not None:
        yield invalid_value(f"{path}.selector", selector, "`selector` will be auto-generated")
    if job.get("manualSelector"):
        yield unsupported(f"{path}.manualSelector", True, ("nil", "false"))


# -- scaling and disruption ----------------------------------------------------------------------------------------


def check_autoscaler(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    low, high, target = spec.get("minReplicas"), spec.get("maxReplicas") or 0, spec["scaleTargetRef"]
    if low is not None and low < 1:
        yield invalid_value("spec.minReplicas", low, "must be greater than or equal to 1")
    if high < 1:
        yield required("spec.maxReplicas", "must be set and greater than 0")
    if low is not None and high < low:
        yield invalid_value("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`")
    for field in ("kind", "name"):
        if not target.get(field):
            yield required(f"spec.scaleTargetRef.{field}")
    if not target.get("apiVersion"):
        yield invalid_value("spec.scaleTargetRef.apiVersion", "", "apiVersion must specify API group")


def check_disruption_budget(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    if low is not None and high is not None:
        policy = spec.get("unhealthyPodEvictionPolicy")
        selector = spec.get("selector")
        shown = {
            "MinAvailable": low,
            "Selector": selector,
            "MaxUnavailable": high,
            "UnhealthyPodEvictionPolicy": policy,
        }
        yield invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    yield from check_label_selector(spec.get("selector") or {}, "spec.selector")
