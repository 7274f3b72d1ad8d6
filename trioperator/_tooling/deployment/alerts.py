"""Alerts on the metrics of an operator, for Prometheus: what people should look at, and which runbook helps. Pure.

An alert is about what nobody has planned: retries and errors, not timers, requeues and resyncs. Its runbook is the
section of its name in ``docs/runbooks.md``, where its numbers are explained.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from trioperator._model.jsontypes import JsonObject
from trioperator._tooling.deployment.network import METRICS_SUFFIX
from trioperator._tooling.deployment.options import DeploymentOptions, make_object

# The page of the runbooks, in this documentation.
RUNBOOKS: Final = "docs/runbooks.md"
_INTERVAL: Final = "30s"
# Stands for the labels by which an operator's metrics are selected.
_LABELS: Final = "@"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert: when its *condition*, in PromQL, has held for a while, *lasting*, this is wrong with the operator."""

    name: str
    condition: str
    lasting: str
    severity: Literal["critical", "warning"] = "warning"
    summary: str
    description: str


def _burn(window: str, *, factor: float) -> str:
    """Return whether more events than *factor* times 1 % were late in a window, of at least ten."""
    done, by = "trioperator_event_to_done_seconds", "sum by (controller)"
    late = f'1 - {by} (rate({done}_bucket{{@, le="60.0"}}[{window}])) / {by} (rate({done}_count{{@}}[{window}]))'
    return f"({late} > {factor / 100:g} and {by} (increase({done}_count{{@}}[{window}])) > 10)"


def _slow(long: str, short: str, *, factor: float, lasting: str, severity: Literal["critical", "warning"]) -> Alert:
    return Alert(
        name="TrioperatorSlow",
        condition=f"{_burn(long, factor=factor)} and {_burn(short, factor=factor)}",
        lasting=lasting,
        severity=severity,
        summary="Changes of {{ $labels.controller }} are handled late.",
        description="{{ $value | humanizePercentage }} of the changes took longer than a minute in the last "
        f"{long}, retries included; 1 % may.",
    )


_ERRORS: Final = (
    "(sum by (controller) (rate(controller_runtime_reconcile_errors_total{@}[15m]))"
    " / sum by (controller) (rate(controller_runtime_reconcile_total{@}[15m])) > 0.1"
    " and sum by (controller) (increase(controller_runtime_reconcile_errors_total{@}[15m])) > 5)"
)
_FAILED: Final = 'trioperator_handler_calls_total{@, controller!="", result=~"retried|failed"}'

#: All alerts.
ALERTS: Final = (
    _slow("1h", "5m", factor=14.4, lasting="2m", severity="critical"),
    _slow("6h", "30m", factor=6.0, lasting="15m", severity="warning"),
    Alert(
        name="TrioperatorObjectStuck",
        condition="max by (controller, object_namespace, object_name) (trioperator_stuck_object_seconds{@}) > 300",
        lasting="10m",
        summary="{{ $labels.object_namespace }}/{{ $labels.object_name }} of {{ $labels.controller }} is stuck.",
        description="It has been handled, and tried again, for {{ $value | humanizeDuration }}, without success.",
    ),
    Alert(
        name="TrioperatorWatchSilent",
        condition="sum by (instance, resource) (increase(trioperator_watch_bookmarks_total{@}[3m]))"
        " + sum by (instance, resource) (increase(trioperator_watch_events_total{@}[3m])) == 0"
        " unless on (instance, resource) trioperator_watches_interrupted{@} > 0",
        lasting="5m",
        severity="critical",
        summary="Nothing comes from the watch of {{ $labels.resource }}.",
        description="It is open, but has brought neither events nor bookmarks: changes may be missed.",
    ),
    Alert(
        name="TrioperatorWatchInterrupted",
        condition="max by (instance, resource) (trioperator_watches_interrupted{@}) > 0",
        lasting="5m",
        severity="critical",
        summary="{{ $labels.resource }} cannot be watched.",
        description="The API server rejects the requests, or does not respond: changes are not seen.",
    ),
    Alert(
        name="TrioperatorContended",
        condition="max by (controller, manager, reason) (trioperator_contended_fields{@}) > 0",
        lasting="5m",
        summary="Fields of {{ $labels.controller }} are contended.",
        description="{{ $value }} fields: {{ $labels.reason }}, with {{ $labels.manager }}.",
    ),
    Alert(
        name="TrioperatorLeaseFlapping",
        condition="max by (name) (increase(trioperator_lease_transitions_total{@}[15m])) > 3",
        lasting="1m",
        summary="The leadership changes again and again.",
        description="The lease {{ $labels.name }} got another holder {{ $value | humanize }} times in 15 minutes.",
    ),
    Alert(
        name="TrioperatorCertificateExpires",
        condition="(trioperator_certificate_expiry_timestamp_seconds{@} - time()) /"
        " (trioperator_certificate_expiry_timestamp_seconds{@} - trioperator_certificate_start_timestamp_seconds{@})"
        " < 0.2",
        lasting="10m",
        severity="critical",
        summary="The certificate of the webhooks is not renewed.",
        description="{{ $value | humanizePercentage }} of its life is left. Then no write passes the webhooks.",
    ),
    Alert(
        name="TrioperatorRestarts",
        condition="max by (instance) (changes(trioperator_start_time_seconds{@}[30m])) > 3",
        lasting="1m",
        severity="critical",
        summary="The operator is restarted again and again.",
        description="{{ $labels.instance }} was restarted {{ $value }} times in half an hour.",
    ),
    Alert(
        name="TrioperatorPausedLong",
        condition="max by (controller) (trioperator_longest_pause_seconds{@}) > 8 * 3600",
        lasting="5m",
        summary="An object of {{ $labels.controller }} has been paused for long.",
        description="Nothing has been done for it for {{ $value | humanizeDuration }}: was it forgotten?",
    ),
    Alert(
        name="TrioperatorReconcileErrors",
        condition=_ERRORS,
        lasting="10m",
        summary="Reconciles of {{ $labels.controller }} fail.",
        description="{{ $value | humanizePercentage }} of them failed in the last 15 minutes.",
    ),
    Alert(
        name="TrioperatorHandlerErrors",
        condition=f"(sum by (controller, handler) (rate({_FAILED}[15m]))"
        ' / sum by (controller, handler) (rate(trioperator_handler_calls_total{@, controller!=""}[15m])) > 0.1'
        f" and sum by (controller, handler) (increase({_FAILED}[15m])) > 5) unless on (controller) {_ERRORS}",
        lasting="10m",
        summary="The handler {{ $labels.handler }} of {{ $labels.controller }} fails.",
        description="{{ $value | humanizePercentage }} of its calls failed in the last 15 minutes.",
    ),
    Alert(
        name="TrioperatorWebhookFailures",
        condition='(sum(rate(controller_runtime_webhook_requests_total{@, code=~"5.."}[5m]))'
        " + sum(rate(controller_runtime_webhook_panics_total{@}[5m]))"
        " + sum(rate(controller_runtime_conversion_webhook_panics_total{@}[5m])))"
        " / sum(rate(controller_runtime_webhook_requests_total{@}[5m])) > 0.05",
        lasting="5m",
        severity="critical",
        summary="Reviews by webhooks fail.",
        description="{{ $value | humanizePercentage }} of them had no answer, or an unexpected exception: such writes"
        " are rejected, or not reviewed.",
    ),
    Alert(
        name="TrioperatorNobodyActive",
        condition="min(trioperator_paused{@}) == 1",
        lasting="5m",
        severity="critical",
        summary="All replicas of the operator are on standby.",
        description="They watch, but handle nothing.",
    ),
    Alert(
        name="TrioperatorNotReady",
        condition="absent(trioperator_ready{@} == 1)",
        lasting="10m",
        severity="critical",
        summary="No replica of the operator is ready.",
        description="None has started completely, or there are no metrics of any.",
    ),
)


def make_rules(options: DeploymentOptions) -> JsonObject:
    """Return the alerts of an operator, as the content of a rules file for Prometheus."""
    labels = f'namespace="{options.namespace}", service="{options.name}{METRICS_SUFFIX}"'
    rules = [_make_rule(alert, labels, options.runbooks or RUNBOOKS) for alert in ALERTS]
    return {"groups": [{"name": options.name, "interval": _INTERVAL, "rules": rules}]}


def make_prometheus_rule(options: DeploymentOptions) -> JsonObject:
    """Return the alerts as a PrometheusRule, a kind of the Prometheus Operator."""
    return make_object(options, "monitoring.coreos.com/v1", "PrometheusRule", spec=make_rules(options))


def _make_rule(alert: Alert, labels: str, runbooks: str) -> JsonObject:
    return {
        "alert": alert.name,
        "expr": alert.condition.replace(_LABELS, labels),
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks}#{alert.name.lower()}",
        },
    }
