"""Users and passwords of hosts in ``~/.netrc``."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from trioperator._kube.netrc_file import find_login
from trioperator.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the file, which does not exist yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    return tmp_path / ".netrc"


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


def test_the_login_is_that_of_the_host(file: Path) -> None:
    write(file, "machine a.example login me password s3cret\nmachine b.example login you password other\n")
    assert find_login("a.example") == ("me", "s3cret")
    assert find_login("b.example") == ("you", "other")
    assert find_login("c.example") is None


def test_a_default_is_for_all_other_hosts(file: Path) -> None:
    write(file, "machine a.example login me password s3cret\ndefault login anybody password any\n")
    assert find_login("a.example") == ("me", "s3cret")
    assert find_login("c.example") == ("anybody", "any")


def test_without_a_file_there_is_no_login(file: Path) -> None:
    assert not file.exists()
    assert find_login("a.example") is None


def test_the_environment_may_name_another_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, "machine a.example login me password s3cret")
    write(file.with_name("logins"), "machine a.example login other password 5ecret")
    monkeypatch.setenv("NETRC", "~/logins")
    assert find_login("a.example") == ("other", "5ecret")


def test_an_invalid_file_is_named_without_its_secrets(file: Path) -> None:
    write(file, "machine a.example login me password s3cret\nmachin s3cret")
    with pytest.raises(ConfigError, match=r"The file .*\.netrc is invalid in line 2\.") as raised:
        find_login("a.example")
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))


def test_an_unreadable_file_is_named(file: Path) -> None:
    file.mkdir()
    with pytest.raises(ConfigError, match=r"Cannot read the file .*\.netrc: "):
        find_login("a.example")
