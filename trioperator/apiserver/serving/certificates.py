"""Certificates of a cluster that is served over TLS: its CA, serving certificates, and client certificates of users.

The subject of a client certificate names the user: the common name is the user name, organizations are groups.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ..model.user import AUTHENTICATED, User

if TYPE_CHECKING:
    import trustme

_VALID_DAYS: Final = 10 * 365  # of a client certificate


class CertificateAuthority:
    """Certificate authority (CA) of a cluster, generated when it is first needed.

    ``pem`` has the certificate and the private key of an existing CA.
    """

    def __init__(self, pem: tuple[bytes, bytes] | None = None) -> None:
        self._pem = pem

    @cached_property
    def _ca(self) -> trustme.CA:
        import trustme

        return trustme.CA() if self._pem is None else trustme.CA.from_pem(*self._pem)

    @property
    def pem(self) -> tuple[bytes, bytes]:
        """Return the certificate and the private key of the CA, to restore it from."""
        return self.certificate, self._ca.private_key_pem.bytes()

    @property
    def certificate(self) -> bytes:
        """Return the CA certificate in PEM."""
        return self._ca.cert_pem.bytes()

    def server_context(self, *hosts: str) -> ssl.SSLContext:
        """Return the TLS context of a server at *hosts*; clients may present certificates of this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION  # which costs servers more than clients; OpenSSL 1.1 allows it
        context.set_alpn_protocols(["http/1.1"])
        self._ca.issue_cert(*dict.fromkeys(hosts)).configure_cert(context)
        context.load_verify_locations(cadata=self.certificate.decode("ascii"))
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def issue(self, user: User) -> tuple[bytes, bytes]:
        """Issue a client certificate for the user; return it and its private key, both in PEM."""
        import datetime

        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        certificate, private = self.pem
        issuer = x509.load_pem_x509_certificate(certificate)
        issuer_key = serialization.load_pem_private_key(private, None)
        assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in user.groups if name != AUTHENTICATED]
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, user.name)]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(min(now + datetime.timedelta(days=_VALID_DAYS), issuer.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
            .sign(issuer_key, hashes.SHA256())
        )
        private_bytes = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return made.public_bytes(serialization.Encoding.PEM), private_bytes


def user_of_certificate(certificate: Mapping[str, Any] | None) -> User | None:
    """Return the user of a client certificate, decoded by :mod:`ssl`; None if it has no common name or is missing."""
    pairs = [pair for names in (certificate or {}).get("subject", ()) for pair in names]
    name = next((value for field, value in pairs if field == "commonName"), "")
    if not name:
        return None
    groups = tuple(value for field, value in pairs if field == "organizationName")
    return User(name=name, groups=(*groups, *(() if AUTHENTICATED in groups else (AUTHENTICATED,))))
