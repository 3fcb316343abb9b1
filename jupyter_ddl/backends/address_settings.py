"""The spec part of ``%cluster connect``: an address, and the files that TLS to it takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.errors import OptionError

__all__ = ["AddressSettings", "scheduler_settings"]

_ADDRESS = re.compile(r"(?:(tls|tcp)://)?((?:\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5}))/?")
_FILES = {
    "ca_file": "distributed.comm.tls.ca-file",
    "cert_file": "distributed.comm.tls.client.cert",
    "key_file": "distributed.comm.tls.client.key",
}


class AddressSettings(msgspec.Struct, frozen=True):
    """A Dask scheduler that is already running, and the files that TLS to it takes."""

    address: str
    """``tls://HOST:PORT``, or ``tcp://HOST:PORT`` where there is no TLS."""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    lost_after_s: float = 120.0
    """A scheduler that is silent for longer is taken for lost, even if its connection stands."""

    def security(self) -> Any:
        """What opens the scheduler, as Dask takes it."""
        from distributed import Security

        if self.address.startswith("tcp://"):
            return Security(require_encryption=False)
        return Security(
            require_encryption=True,
            tls_ca_file=self.ca_file,
            tls_client_cert=self.cert_file,
            tls_client_key=self.key_file,
        )


def scheduler_settings(address: str) -> AddressSettings:
    """Address and files, checked here: the controller does not know this process's settings.

    Without ``tls://`` or ``tcp://`` before it, TLS is meant.

    Raises
    ------
    OptionError
        The address is not one, Dask's configuration names no files for TLS or such that are not
        there, or forbids plain TCP.
    """
    import dask.config

    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[3]) < 65536:
        raise OptionError(
            f"{address!r} is not the address of a scheduler; expected tls://HOST:PORT, or "
            "tcp://HOST:PORT for one without TLS"
        )
    if found[1] == "tcp":
        if dask.config.get("distributed.comm.require-encryption", None):
            raise OptionError(
                f"{address} is not encrypted, but Dask's configuration requires it "
                f"(distributed.comm.require-encryption); connect to tls://{found[2]}"
            )
        return AddressSettings(f"tcp://{found[2]}")
    files = {field: _existing(field, dask.config.get(key, None)) for field, key in _FILES.items()}
    return AddressSettings(
        f"tls://{found[2]}", files["ca_file"], files["cert_file"], files["key_file"]
    )


def _existing(field: str, value: object) -> str:
    if not value:
        raise OptionError(
            "TLS needs the scheduler's CA and our own certificate, but Dask's configuration has "
            f"no {_FILES[field]}; set {', '.join(_FILES.values())}, or connect to tcp://HOST:PORT "
            "if there is no TLS"
        )
    text = str(value)
    if "\n" in text:  # the certificate itself, as Security.temporary() has it
        raise OptionError(f"{_FILES[field]} in Dask's configuration is not the path of a file")
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise OptionError(f"{_FILES[field]} in Dask's configuration is {text!r}: no such file")
    return str(path)
