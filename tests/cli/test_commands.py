"""Tests for :mod:`trioperator.cli.commands`: how options and variables become what is to be done."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

import pytest

from trioperator.cli import commands, running, serving
from trioperator.cli.running import EmbeddedOptions, LogOptions, RunOptions
from trioperator.cli.serving import ClusterOptions

Parse: TypeAlias = Callable[..., RunOptions]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Give the options that a command line means."""
    for name in list(os.environ):
        if name.startswith("TRIOPERATOR_"):
            monkeypatch.delenv(name)

    def parse(*args: str, **variables: str) -> RunOptions:
        taken: list[RunOptions] = []

        def take(options: RunOptions) -> int:
            taken.append(options)
            return 7

        monkeypatch.setattr(running, "run_operator", take)
        for name, value in variables.items():
            monkeypatch.setenv(f"TRIOPERATOR_RUN_{name}", value)
        with pytest.raises(SystemExit) as caught:
            commands.app(["run", *args], prog_name="trioperator")
        assert caught.value.code == (7 if taken else 2)
        if not taken:
            raise ValueError("wrong")
        return taken[0]

    return parse


def test_nothing_but_a_file(parse: Parse) -> None:
    assert parse("main.py") == RunOptions(files=("main.py",))


def test_all_options(parse: Parse) -> None:
    options = parse(
        *("-m", "one", "--module", "two.three", "-n", "a", "--namespace", "b-*,!b-c", "--standalone"),
        *("-L", "http://:80/x", "-v", "-d", "-q", "--log-format", "json", "--log-prefix", "--log-refkey", "k8s"),
        *("--embedded", "--embedded-port", "5", "--apply", "a.yaml", "--apply", "b.yaml"),
        *("--controllers", "pods, workloads", "x.py", "y.py"),
    )
    assert options == RunOptions(
        files=("x.py", "y.py"),
        modules=("one", "two.three"),
        namespaces=("a", "b-*,!b-c"),
        standalone=True,
        liveness="http://:80/x",
        embedded=EmbeddedOptions(port=5, manifests=("a.yaml", "b.yaml"), controllers=("pods", "workloads")),
        logs=LogOptions(verbose=True, debug=True, quiet=True, format="JSON", prefix=True, refkey="k8s"),
    )


def test_all_variables(parse: Parse) -> None:
    options = parse(
        "x.py",
        MODULES="one two.three",
        NAMESPACES="a b",
        STANDALONE="1",
        LIVENESS="http://:80/x",
        VERBOSE="true",
        DEBUG="yes",
        QUIET="on",
        LOG_FORMAT="PLAIN",
        LOG_PREFIX="no",
        LOG_REFKEY="k8s",
        EMBEDDED="1",
        EMBEDDED_PORT="5",
        APPLY="a.yaml b.yaml",
        CONTROLLERS="pods,workloads",
    )
    assert options == RunOptions(
        files=("x.py",),
        modules=("one", "two.three"),
        namespaces=("a", "b"),
        standalone=True,
        liveness="http://:80/x",
        embedded=EmbeddedOptions(port=5, manifests=("a.yaml", "b.yaml"), controllers=("pods", "workloads")),
        logs=LogOptions(verbose=True, debug=True, quiet=True, format="PLAIN", prefix=False, refkey="k8s"),
    )


def test_other_names_of_variables(parse: Parse) -> None:
    options = parse(MODULE="one", CLUSTERWIDE="1", LIVENESS_ENDPOINT="http://x/")
    assert options == RunOptions(modules=("one",), clusterwide=True, liveness="http://x/")
    assert parse("x.py", ALL_NAMESPACES="1").clusterwide


def test_options_win_over_variables(parse: Parse) -> None:
    options = parse(
        "x.py", "-n", "a", "--log-format", "full", "--log-prefix", NAMESPACE="b", LOG_FORMAT="json", LOG_PREFIX="0"
    )
    assert options.namespaces == ("a",)
    assert options.logs == LogOptions(format="FULL", prefix=True)


def test_empty_variables_are_none(parse: Parse) -> None:
    names = ("MODULES", "NAMESPACES", "LIVENESS", "LOG_REFKEY", "APPLY", "VERBOSE", "ALL_NAMESPACES", "LOG_PREFIX")
    assert parse("x.py", **dict.fromkeys(names, "")) == RunOptions(files=("x.py",))


@pytest.mark.parametrize("option", [[], ["--log-prefix"], ["--no-log-prefix"]])
def test_the_prefix_depends_on_the_format_unless_it_is_given(parse: Parse, option: list[str]) -> None:
    expected = {"--log-prefix": True, "--no-log-prefix": False}.get("".join(option))
    assert parse("x.py", *option).logs.prefix is expected


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give files or modules"),
        (("-A",), "give files or modules"),
        (("-n", "a", "-A", "x.py"), "give either -n or -A, not both"),
        (("--apply", "a.yaml", "x.py"), "it needs --embedded"),
        (("--embedded-port", "5", "x.py"), "it needs --embedded"),
        (("--controllers", "all", "x.py"), "it needs --embedded"),
        (("--embedded", "--embedded-port", "65536", "x.py"), "65535"),
        (("--log-format", "xml", "x.py"), "xml"),
        (("--peering", "p", "x.py"), "No such option: --peering"),
        (("--dev", "x.py"), "No such option: --dev"),
        (("--liveness",), "--liveness"),
    ],
)
def test_wrong_use_is_told(
    parse: Parse, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match="wrong"):
        parse(*args)
    stderr = capsys.readouterr().err
    assert message in stderr
    assert "Traceback" not in stderr


class TestCluster:
    @pytest.fixture
    def parse_cluster(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ClusterOptions]:
        """Give the options that a command line means."""

        def parse(*args: str, **variables: str) -> ClusterOptions:
            taken: list[ClusterOptions] = []

            def take(options: ClusterOptions, *, tell: Callable[[str], None]) -> int:
                taken.append(options)
                return 7

            monkeypatch.setattr(serving, "run_cluster", take)
            for name, value in variables.items():
                monkeypatch.setenv(f"TRIOPERATOR_CLUSTER_{name}", value)
            with pytest.raises(SystemExit) as caught:
                commands.app(["cluster", *args], prog_name="trioperator")
            assert caught.value.code == (7 if taken else 2)
            if not taken:
                raise ValueError("wrong")
            return taken[0]

        return parse

    def test_nothing(self, parse_cluster: Callable[..., ClusterOptions]) -> None:
        assert parse_cluster() == ClusterOptions()

    def test_all_options(self, parse_cluster: Callable[..., ClusterOptions]) -> None:
        expected = ClusterOptions(
            host="::1",
            port=5,
            tls=False,
            data="d",
            kubeconfig="k",
            manifests=("a.yaml", "folder", "-"),
            authorization="rbac",
            controllers=("pods", "workloads"),
        )
        options = ("--host", "::1", "--port", "5", "--no-tls", "--data", "d", "--kubeconfig", "k")
        more = ("--authorization", "rbac", "--controllers", "pods, workloads")
        manifests = ("--apply", "a.yaml", "--apply", "folder", "--apply", "-")
        assert parse_cluster(*options, *manifests, *more) == expected
        variables = {
            "HOST": "::1",
            "PORT": "5",
            "TLS": "no",
            "DATA": "d",
            "KUBECONFIG": "k",
            "APPLY": "a.yaml folder -",
            "AUTHORIZATION": "rbac",
            "CONTROLLERS": "pods,workloads",
        }
        assert parse_cluster(**variables) == expected

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("--port", "65536"), "65535"),
            (("--port", "x"), "--port"),
            (("--data",), "--data"),
            (("--authorization", "none"), "'none' is not one of 'rbac', 'always-allow'"),
            (("x.py",), "unexpected extra argument"),
        ],
    )
    def test_wrong_use_is_told(
        self,
        parse_cluster: Callable[..., ClusterOptions],
        capsys: pytest.CaptureFixture[str],
        args: tuple[str, ...],
        message: str,
    ) -> None:
        with pytest.raises(ValueError, match="wrong"):
            parse_cluster(*args)
        stderr = capsys.readouterr().err
        assert message in stderr
        assert "Traceback" not in stderr
