"""Resource kinds and selectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trioperator._model.resource import EVERYTHING, Resource, Selector, select_resources

ALL_VERBS = frozenset({"list", "watch", "patch", "get", "create", "update", "delete"})


def resource(group: str, version: str, plural: str, kind: str, **options: Any) -> Resource:
    options = {"singular": kind.lower(), "verbs": ALL_VERBS} | options
    return Resource(group, version, plural, kind=kind, **options)


KEX = resource(
    "kopf.dev",
    "v1",
    "kopfexamples",
    "KopfExample",
    shortcuts=frozenset({"kex"}),
    categories=frozenset({"all", "toys"}),
)
KEX_BETA = resource("kopf.dev", "v1beta1", "kopfexamples", "KopfExample", preferred=False, shortcuts=frozenset({"kex"}))
PODS = resource("", "v1", "pods", "Pod", shortcuts=frozenset({"po"}), categories=frozenset({"all"}))
POD_METRICS = resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", singular="pod")
DEPLOYMENTS = resource("apps", "v1", "deployments", "Deployment", categories=frozenset({"all"}))
EVENTS = resource("", "v1", "events", "Event")
NEW_EVENTS = resource("events.k8s.io", "v1", "events", "Event")
CLUSTER = frozenset({KEX, KEX_BETA, PODS, POD_METRICS, DEPLOYMENTS, EVENTS, NEW_EVENTS})


def is_kex(found: Resource) -> bool:
    return found.plural == "kopfexamples"


class TestResource:
    def test_group_version_and_plural_determine_equality(self) -> None:
        same = Resource(group="kopf.dev", version="v1", plural="kopfexamples", kind="Other")
        assert same == KEX
        assert hash(same) == hash(KEX)
        assert same != KEX_BETA
        assert KEX != ("kopf.dev", "v1", "kopfexamples")
        assert tuple(KEX) == ("kopf.dev", "v1", "kopfexamples")
        group, version, plural = KEX
        assert (group, version, plural) == ("kopf.dev", "v1", "kopfexamples")

    def test_its_string_is_kubectls_name(self) -> None:
        assert str(KEX) == "kopfexamples.v1.kopf.dev"
        assert str(PODS) == "pods.v1"

    def test_it_has_the_api_version_of_manifests(self) -> None:
        assert KEX.api_version == "kopf.dev/v1"
        assert PODS.api_version == "v1"

    @pytest.mark.parametrize("name", ["kopfexamples", "kopfexample", "KopfExample", "kex"])
    def test_it_has_several_names(self, name: str) -> None:
        assert KEX.has_name(name)
        assert not PODS.has_name(name)

    @pytest.mark.parametrize(
        ("kind", "options", "path"),
        [
            (KEX, {}, "/apis/kopf.dev/v1/kopfexamples"),
            (KEX, {"namespace": "ns"}, "/apis/kopf.dev/v1/namespaces/ns/kopfexamples"),
            (KEX, {"namespace": "ns", "name": "x"}, "/apis/kopf.dev/v1/namespaces/ns/kopfexamples/x"),
            (
                KEX,
                {"namespace": "ns", "name": "x", "subresource": "status"},
                "/apis/kopf.dev/v1/namespaces/ns/kopfexamples/x/status",
            ),
            (PODS, {"namespace": "ns", "name": "x"}, "/api/v1/namespaces/ns/pods/x"),
            (PODS, {}, "/api/v1/pods"),
            (Resource("apps", "v1", "x"), {"namespace": "ns"}, "/apis/apps/v1/namespaces/ns/x"),
            (
                Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False),
                {"namespace": "ignored", "name": "system:node x"},
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode%20x",
            ),
        ],
    )
    def test_it_has_a_path_for_collections_objects_and_subresources(
        self, kind: Resource, options: dict[str, Any], path: str
    ) -> None:
        assert kind.get_path(**options) == path
        assert kind.get_url(**options) == path
        assert kind.get_url(server="https://host:6443/", **options) == f"https://host:6443{path}"

    @pytest.mark.parametrize("name", ["", ".", "..", "web/scale", "../secrets/s", "p%2Flog", "p/proxy/admin"])
    def test_names_and_namespaces_that_lead_elsewhere_have_no_path(self, name: str) -> None:
        with pytest.raises(ValueError, match="is no name"):
            KEX.get_path(namespace="default", name=name)
        if name:  # none is the cluster
            with pytest.raises(ValueError, match="is no name"):
                KEX.get_path(namespace=name, name="x")

    def test_a_url_may_have_parameters(self) -> None:
        url = KEX.get_url(server="http://host", params={"watch": "true", "labelSelector": "a=b&c"})
        assert url == "http://host/apis/kopf.dev/v1/kopfexamples?watch=true&labelSelector=a%3Db%26c"
        assert KEX.get_url(params={"limit": 5, "x": 0.5}) == "/apis/kopf.dev/v1/kopfexamples?limit=5&x=0.5"

    def test_a_subresource_needs_an_object(self) -> None:
        with pytest.raises(ValueError, match="name"):
            KEX.get_path(subresource="status")

    @pytest.mark.parametrize("subresource", ["../../secrets/s", "log/..", ".", "", "%2e%2e", "proxy//x"])
    def test_a_subresource_leads_nowhere_else(self, subresource: str) -> None:
        with pytest.raises(ValueError, match="is no name"):
            KEX.get_path(namespace="default", name="x", subresource=subresource)
        assert KEX.get_path(name="x", subresource="proxy/a?b").endswith("/x/proxy/a%3Fb")


class TestParsing:
    @pytest.mark.parametrize(
        "forms",
        [
            [("kopf.dev", "v1", "kopfexamples"), ("kopf.dev/v1", "kopfexamples"), ("kopfexamples.v1.kopf.dev",)],
            [("kopf.dev", "kopfexamples"), ("kopfexamples.kopf.dev",), ("kopf.dev/kopfexamples",)],
            [("apps", "v1", "deployments"), ("apps/v1/deployments",), ("deployments.v1.apps",)],
            [("apps", "deployments"), ("deployments.apps",)],
            [("", "v1", "pods"), ("v1", "pods"), ("v1/pods",)],
            [("kopf.dev", "v1", EVERYTHING), ("kopf.dev/v1", EVERYTHING)],
            [("pods",), (None, "pods"), (None, None, "pods")],
            [("metrics.k8s.io", "pods"), ("pods.metrics.k8s.io",)],
            [("metrics.k8s.io", "v1beta1", "pods"), ("pods.v1beta1.metrics.k8s.io",)],
        ],
    )
    def test_equivalent_notations_are_the_same_selector(self, forms: list[tuple[Any, ...]]) -> None:
        selectors = {Selector.parse(*form) for form in forms}
        assert len(selectors) == 1

    def test_a_version_after_the_name_leaves_the_group_open(self) -> None:
        assert Selector.parse("pods.v1") == Selector.parse("pods", version="v1")
        assert Selector.parse("pods.v1beta1").group is None

    def test_a_group_that_looks_like_no_version_is_a_group(self) -> None:
        assert Selector.parse("v1beta1", "pods").group == "v1beta1"
        assert Selector.parse("things.v1x") == Selector.parse("v1x", "things")

    def test_keywords_restrict_positional_selectors(self) -> None:
        assert Selector.parse("kopfexamples", group="kopf.dev") == Selector.parse("kopf.dev", "kopfexamples")
        assert Selector.parse("kopfexamples.kopf.dev", group="kopf.dev") == Selector.parse("kopf.dev", "kopfexamples")

    @pytest.mark.parametrize(
        ("args", "options"),
        [
            ((), {}),
            ((), {"group": "kopf.dev"}),
            (("",), {}),
            (("v1", ""), {}),
            (("v1/",), {}),
            (("v1", "pods/status"), {}),
            (("pods",), {"group": "apps/v1"}),
            (("apps", "", "deployments"), {}),
            ((), {"kind": ""}),
            (("a", "b", "c", "d"), {}),
            (("pods",), {"kind": "Pod"}),
            ((EVERYTHING,), {"kind": "Pod"}),
            ((), {"kind": "Pod", "plural": "pods"}),
            ((), {"category": "all", "singular": "pod"}),
            (("kopf.dev", is_kex), {}),
            ((5,), {}),
            (("kopf.dev", 5), {}),
            ((5, "pods"), {}),
            ((["a"], "v1", "pods"), {}),
            ((), {"kind": 5}),
            (("apps", "deployments"), {"group": "batch"}),
            (("pods",), {"nonsense": "x"}),
        ],
    )
    def test_invalid_selectors_are_rejected(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            Selector.parse(*args, **options)

    @pytest.mark.parametrize(
        ("args", "options", "specific"),
        [
            (("pods",), {}, True),
            ((), {"plural": "pods"}, True),
            ((EVERYTHING,), {}, False),
            (("kopf.dev", EVERYTHING), {}, False),
            ((), {"category": "all"}, False),
            ((is_kex,), {}, False),
        ],
    )
    def test_a_selector_by_name_is_specific(self, args: Any, options: Any, specific: bool) -> None:
        assert Selector.parse(*args, **options).is_specific is specific

    def test_its_string_is_what_it_selects(self) -> None:
        assert str(Selector.parse("apps", "v1", "deployments")) == "apps/v1/deployments"
        assert str(Selector.parse(group="apps", version="v1", plural="deployments")) == "deployments.v1.apps"
        assert str(Selector.parse(category="all")) == "category=all"
        assert str(Selector.parse("kopf.dev", EVERYTHING)) == "kopf.dev/EVERYTHING"
        assert str(Selector.parse(is_kex)) == "is_kex"


class TestSelecting:
    @pytest.mark.parametrize(
        ("args", "options", "expected"),
        [
            (("kopfexamples",), {}, {KEX}),
            (("kopfexample",), {}, {KEX}),
            (("KopfExample",), {}, {KEX}),
            (("kex",), {}, {KEX}),
            ((), {"kind": "KopfExample"}, {KEX}),
            ((), {"plural": "kopfexamples"}, {KEX}),
            ((), {"singular": "kopfexample"}, {KEX}),
            ((), {"shortcut": "kex"}, {KEX}),
            ((), {"group": "kopf.dev", "version": "v1beta1", "plural": "kopfexamples"}, {KEX_BETA}),
            (("kopfexamples.v1beta1",), {}, {KEX_BETA}),
            ((), {"category": "toys"}, {KEX}),
            ((), {"category": "all"}, {KEX, PODS, DEPLOYMENTS}),
            ((EVERYTHING,), {}, {KEX, PODS, POD_METRICS, DEPLOYMENTS}),
            (("kopf.dev", EVERYTHING), {}, {KEX}),
            (("kopf.dev", "v1beta1", EVERYTHING), {}, {KEX_BETA}),
            ((is_kex,), {}, {KEX, KEX_BETA}),
            ((is_kex,), {"version": "v1"}, {KEX}),
            ((lambda found: True,), {"group": ""}, {PODS}),
            (("pods",), {}, {PODS}),
            (("pod",), {}, {PODS}),
            (("pods.v1",), {}, {PODS}),
            (("v1", "pods"), {}, {PODS}),
            (("metrics.k8s.io", "pods"), {}, {POD_METRICS}),
            (("v1", "events"), {}, {EVENTS}),
            (("events",), {}, {EVENTS}),
            (("events.k8s.io", "events"), {}, {NEW_EVENTS}),
        ],
    )
    def test_matching_kinds_are_selected(
        self, args: tuple[Any, ...], options: dict[str, Any], expected: set[Resource]
    ) -> None:
        selection = select_resources(Selector.parse(*args, **options), CLUSTER)
        assert selection.resources == expected
        assert selection.problem is None

    @pytest.mark.parametrize("args", [("kopfexample",), ("x",), ("kopf.dev", "v2", "kopfexamples"), ("Kopfexamples",)])
    def test_a_missing_kind_is_a_problem(self, args: tuple[str, ...]) -> None:
        selection = select_resources(Selector.parse(*args), CLUSTER - {KEX, KEX_BETA})
        assert not selection.resources
        assert selection.problem is not None
        assert args[-1] in selection.problem

    def test_a_version_that_is_not_preferred_must_be_named(self) -> None:
        assert not select_resources(Selector.parse("kopfexamples"), {KEX_BETA}).resources

    def test_an_ambiguous_name_is_not_served_and_the_problem_names_the_kinds(self) -> None:
        other = resource("other.dev", "v1", "kopfexamples", "KopfExample")
        selection = select_resources(Selector.parse("kopfexamples"), CLUSTER | {other})
        assert not selection.resources
        assert selection.problem is not None
        assert "kopfexamples.v1.kopf.dev" in selection.problem
        assert "kopfexamples.v1.other.dev" in selection.problem
        assert select_resources(Selector.parse("kopf.dev", "kopfexamples"), CLUSTER | {other}).resources == {KEX}

    def test_two_kinds_of_one_name_in_the_core_group_are_ambiguous(self) -> None:
        other = resource("", "v1", "peas", "Pea", shortcuts=frozenset({"po"}))
        assert not select_resources(Selector.parse("po"), CLUSTER | {other}).resources

    @pytest.mark.parametrize("verbs", [frozenset(), frozenset({"list"}), frozenset({"watch", "create"})])
    def test_kinds_that_cannot_be_listed_or_watched_are_not_served(self, verbs: frozenset[str]) -> None:
        reviews = resource("auth.k8s.io", "v1", "reviews", "Review", verbs=verbs)
        selection = select_resources(Selector.parse("reviews"), {reviews})
        assert not selection.resources
        assert selection.problem is not None
        assert "reviews.v1.auth.k8s.io" in selection.problem
        selection = select_resources(Selector.parse(EVERYTHING), {reviews, KEX})
        assert selection.resources == {KEX}
        assert selection.problem is not None

    def test_a_selector_function_is_not_called_for_other_groups(self) -> None:
        asked: list[Resource] = []

        def ask(found: Resource) -> bool:
            asked.append(found)
            return True

        select_resources(Selector.parse(ask, group="apps"), CLUSTER)
        assert asked == [DEPLOYMENTS]

    @pytest.mark.parametrize("test", [is_kex, lambda found: 1, lambda found: "yes"])
    def test_matching_returns_a_bool(self, test: Callable[[Resource], bool]) -> None:
        assert Selector.parse(test).matches(KEX) is True


def test_a_kind_that_does_not_exist_is_reported_with_the_most_similar_one() -> None:
    resources = [Resource("example.com", "v1", "widgets", "Widget", verbs=frozenset({"list", "watch"}))]
    problem = select_resources(Selector.parse("widgts"), resources).problem or ""
    assert problem.startswith("The resource widgts (did you mean widgets?) does not exist yet, and is served as soon")
