"""Certificates that live in memory as long as a cluster, whatever its hosts take the time to be."""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Security

__all__ = ["temporary_security"]

_FROM, _UNTIL = datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59)
"""Who has the key is in.  Dates would only keep out a host whose clock is behind the notebook's,
or all of them once a clock is set back; the second one is the standard's for "none" (RFC 5280)."""


def temporary_security() -> Security:
    """One key and certificate for all roles of a cluster; encryption is required."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dask-internal")])
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("dask-internal")]), critical=False)
    )
    pem = serialization.Encoding.PEM
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(pem).decode()
    secret = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=certificate,
        **{f"tls_{role}_cert": certificate for role in roles},
        **{f"tls_{role}_key": secret for role in roles},
    )
