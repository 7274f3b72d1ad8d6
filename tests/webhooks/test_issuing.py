"""Tests for :mod:`trioperator._webhooks.issuing`.

CAs and certificates by them, as OpenSSL and API servers take them.
"""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trioperator._webhooks.certificates import make_context
from trioperator._webhooks.issuing import Authority, Validity, build_authority, build_certificate, check_authority

NOW = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def names_of(chain: bytes) -> list[str]:
    certificate = x509.load_pem_x509_certificate(chain)
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def handshake(chain: bytes, key: bytes, authority: bytes, host: str) -> None:
    """Connect to a server with the certificate, in memory. Raises ssl.SSLError if it is not trusted."""
    trust = ssl.create_default_context(cadata=authority.decode())
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as the Go of API servers: CAs of others may lack extensions
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust.wrap_bio(to_client, to_server, server_hostname=host)
    server = make_context(chain, key).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_a_certificate_is_for_names_and_addresses_but_not_for_wildcards() -> None:
    hosts = ["hooks.ns.svc", "0.0.0.0", "::", "127.0.0.1", "[::1]", "hooks.ns.svc", "bücher.example"]
    chain, _ = build_certificate(hosts, authority=build_authority(NOW), now=NOW)
    assert names_of(chain) == ["hooks.ns.svc", "127.0.0.1", "::1", "xn--bcher-kva.example"]


def test_without_any_name_it_is_for_this_machine() -> None:
    assert names_of(build_certificate(["0.0.0.0"], authority=build_authority(NOW), now=NOW)[0]) == ["localhost"]


def test_a_ca_issues_certificates_of_servers_and_no_further_cas_for_a_year() -> None:
    authority = x509.load_pem_x509_certificate(build_authority(NOW).certificate)
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    assert (usage.key_cert_sign, usage.digital_signature, usage.key_encipherment) == (True, False, False)
    assert authority.not_valid_after_utc - NOW == 365 * DAY
    assert authority.not_valid_before_utc < NOW


def test_a_certificate_is_valid_for_90_days_but_not_longer_than_its_ca() -> None:
    authority = build_authority(NOW)
    for age, life in ((0, 90), (300, 65)):
        now = NOW + age * DAY
        leaf = x509.load_pem_x509_certificate(build_certificate(["localhost"], authority=authority, now=now)[0])
        assert leaf.not_valid_after_utc - now == life * DAY
        assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]


@pytest.mark.parametrize("is_constrained", [False, True])
@pytest.mark.parametrize("hosts", [["hooks.ns.svc", "127.0.0.1"], ["127.0.0.1"], ["::1", "*.example.com"]])
def test_certificates_are_trusted_by_their_ca(hosts: list[str], *, is_constrained: bool) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority = build_authority(now, hosts if is_constrained else ())
    chain, key = build_certificate(hosts, authority=authority, now=now)
    for host in hosts:
        handshake(chain, key, authority.certificate, host.replace("*", "any"))
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        handshake(chain, key, build_authority(now).certificate, hosts[0])


@pytest.mark.parametrize("host", ["bank.example.com", "10.0.0.1"])
def test_a_ca_for_some_hosts_is_trusted_for_no_others(host: str) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority = build_authority(now, ["hooks.ns.svc", "127.0.0.1"])
    chain, key = build_certificate([host], authority=authority, now=now)
    with pytest.raises(ssl.SSLError, match="permitted subtree violation"):
        handshake(chain, key, authority.certificate, host)


def test_a_ca_of_others_can_issue_certificates() -> None:
    private = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ours")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(private.public_key())
    builder = builder.serial_number(1).not_valid_before(now - DAY).not_valid_after(now + 5000 * DAY)
    made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    from cryptography.hazmat.primitives import hashes

    certificate = made.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    authority = Authority(certificate, private.private_bytes(pem, form, serialization.NoEncryption()))
    check_authority(authority)
    assert not Validity.read(certificate).is_own
    handshake(*build_certificate(["localhost"], authority=authority, now=now), certificate, "localhost")


@pytest.mark.parametrize(("age", "is_due"), [(0, False), (59, False), (61, True), (100, True)])
def test_certificates_are_renewed_when_two_thirds_of_their_life_are_over(age: int, *, is_due: bool) -> None:
    chain, _ = build_certificate(["localhost"], authority=build_authority(NOW), now=NOW)
    assert Validity.read(chain).is_due(NOW + age * DAY) is is_due
