"""Certificates that live in memory as long as a cluster, whatever its hosts take the time to be.

One for all of Dask's connections, and a pair for the port of a controller elsewhere: the
controller shows one, its clients the other, and neither end knows anybody else.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Security

from jupyter_ddl.errors import ClusterError

__all__ = ["PortKeys", "port_keys", "server_context", "temporary_security"]

_FROM, _UNTIL = datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59)
"""Who has the key is in.  Dates would only keep out a host whose clock is behind the notebook's,
or all of them once a clock is set back; the second one is the standard's for "none" (RFC 5280)."""


def temporary_security() -> Security:
    """One key and certificate for all roles of a cluster; encryption is required."""
    certificate, secret = _signed_by_itself("dask-internal")
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=certificate,
        **{f"tls_{role}_cert": certificate for role in roles},
        **{f"tls_{role}_key": secret for role in roles},
    )


def _signed_by_itself(common_name: str) -> tuple[str, str]:
    """A certificate and its key, as PEM texts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
    )
    pem = serialization.Encoding.PEM
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(pem).decode()
    secret = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return certificate, secret


# The port of a controller elsewhere.

SERVER_CERTIFICATE, SERVER_KEY = "server.crt", "server.key"
CLIENT_CERTIFICATE, CLIENT_KEY = "client.crt", "client.key"


class PortKeys(msgspec.Struct, frozen=True):
    """What opens a controller's port, as PEM texts."""

    server_certificate: str
    server_key: str
    client_certificate: str
    client_key: str

    def files(self) -> dict[str, str]:
        """The texts by the names of files, of a Secret for instance."""
        return {
            SERVER_CERTIFICATE: self.server_certificate,
            SERVER_KEY: self.server_key,
            CLIENT_CERTIFICATE: self.client_certificate,
            CLIENT_KEY: self.client_key,
        }

    @classmethod
    def of_files(cls, files: Mapping[str, str]) -> PortKeys:
        """From what :meth:`files` has returned.

        Raises
        ------
        ClusterError
            One is missing.
        """
        names = (SERVER_CERTIFICATE, SERVER_KEY, CLIENT_CERTIFICATE, CLIENT_KEY)
        if missing := [name for name in names if not files.get(name)]:
            raise ClusterError(f"the keys of the controller's port lack {', '.join(missing)}")
        return cls(*(files[name] for name in names))

    def client_context(self) -> ssl.SSLContext:
        """For who connects: the server is this very one, wherever it answers."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False  # its name is its certificate
        context.load_verify_locations(cadata=self.server_certificate)
        with _in_memory(self.client_certificate + self.client_key) as path:
            context.load_cert_chain(path)
        return context


def port_keys() -> PortKeys:
    """Two new pairs."""
    return PortKeys(*_signed_by_itself("controller"), *_signed_by_itself("client"))


SERVER_FILES = (SERVER_CERTIFICATE, SERVER_KEY, CLIENT_CERTIFICATE)
"""What the controller's end needs of them: it can't act as its own client."""


def server_context(folder: Path) -> ssl.SSLContext:
    """For the controller: who connects has the one client's key.

    Parameters
    ----------
    folder : Path
        With :data:`SERVER_FILES`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / SERVER_CERTIFICATE, folder / SERVER_KEY)
    context.load_verify_locations(folder / CLIENT_CERTIFICATE)
    return context


@contextlib.contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Path of a file that is on no disk: OpenSSL, as Python has it, reads keys from files only."""
    fd = os.memfd_create("keys", os.MFD_CLOEXEC)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{fd}"
