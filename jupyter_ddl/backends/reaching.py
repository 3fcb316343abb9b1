"""Finds out, step by step, why a scheduler elsewhere can't be used, and lets go of one.

Each step has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import cloudpickle
import distributed
from distributed import Client, Security
from distributed.core import rpc

from jupyter_ddl import __version__
from jupyter_ddl.errors import ClusterError, WorkerEnvironmentError

__all__ = ["check_listens", "check_scheduler", "check_versions", "close_client", "n_connected"]

_CONNECT_S = 3.0
_FIRST_BYTE_S = 1.5
_IDENTITY_S = 3.0
_VERSIONS_S = 4.0
_CLOSE_S = 5.0


async def check_listens(address: str, security: Security) -> None:
    """Somebody listens there, and speaks TLS, or plain TCP, as the address says.

    Raises
    ------
    ClusterError
        With what is there instead.
    """
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    context = security.get_connection_args("client")["ssl_context"] if scheme == "tls" else None
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except TimeoutError:
        hint = "a firewall may be in between, or it waits for plain TCP (tcp://)"
        raise _unreachable(address, f"no answer within {_CONNECT_S:.0f} s; {hint}") from None
    except socket.gaierror:
        raise _unreachable(address, f"the host name {host} is not known here") from None
    except ConnectionRefusedError:
        raise _unreachable(
            address, f"nothing listens at port {port}; is `dask scheduler` running?"
        ) from None
    except ssl.SSLCertVerificationError as error:
        raise _unreachable(
            address,
            f"its certificate is not one of distributed.comm.tls.ca-file "
            f"({error.verify_message}); use the CA file that the scheduler was started with",
        ) from None
    except ssl.SSLError as error:
        raise _unreachable(
            address,
            f"it does not speak TLS ({error.reason or error}); a scheduler without TLS is "
            f"tcp://{rest}",
        ) from None
    except OSError as error:
        raise _unreachable(address, error.strerror or repr(error)) from None
    try:
        if context is None:
            await _check_speaks_first(reader, address)
    finally:
        writer.close()


async def _check_speaks_first(reader: asyncio.StreamReader, address: str) -> None:
    """Dask greets who connects; with TLS it waits for the other side."""
    try:
        async with asyncio.timeout(_FIRST_BYTE_S):
            first = await reader.read(1)
    except (TimeoutError, OSError):
        first = b""
    if not first:
        raise _unreachable(
            address,
            "what listens there does not greet as Dask does without TLS; a scheduler with TLS is "
            f"tls://{address.partition('://')[2]}",
        )


async def check_scheduler(address: str, security: Security) -> None:
    """What listens there is a Dask scheduler that answers us.

    Raises
    ------
    ClusterError
        It is something else, or refuses our certificate.
    """
    arguments = security.get_connection_args("client")
    there = rpc(address, connection_args=arguments, timeout=_IDENTITY_S)
    try:
        async with asyncio.timeout(_IDENTITY_S):
            identity = await there.identity()
    except (OSError, TimeoutError, TypeError, ValueError):
        raise _unreachable(
            address,
            f"it does not answer as a Dask scheduler of version {distributed.__version__} does; "
            f"is it one, and does it accept our certificate?",
        ) from None
    finally:
        await there.close_rpc()
    kind = identity.get("type") if isinstance(identity, Mapping) else None
    if kind == "Scheduler":
        return
    known = identity.get("scheduler") if isinstance(identity, Mapping) else None
    hint = f"; its scheduler is {known}" if known else ""
    raise _unreachable(address, f"it is a Dask {str(kind).lower()}, not a scheduler{hint}")


async def check_versions(client: Client) -> None:
    """There are workers, and all of them can run what this controller sends.

    Packages beyond that are compared before each dispatch, as on every cluster.

    Raises
    ------
    ClusterError
        No worker is connected.
    WorkerEnvironmentError
        Python, Dask, cloudpickle or this package is missing there or another one.
    """
    try:
        async with asyncio.timeout(_VERSIONS_S):
            found = await client.get_versions(packages=["jupyter_ddl"])
    except (OSError, TimeoutError, ValueError):
        address = client.scheduler.address
        raise _unreachable(address, "its workers did not report their versions in time") from None
    workers = found["workers"]
    if not workers:
        raise ClusterError(
            f"the scheduler {client.scheduler.address} has no workers; start some "
            f"(`dask worker {client.scheduler.address}`) and connect again"
        )
    faults = {a: text for a, answer in workers.items() if (text := _difference(answer))}
    if faults:
        first = next(iter(faults))
        raise WorkerEnvironmentError(
            f"{len(faults)} of {len(workers)} workers of {client.scheduler.address} can't be used; "
            f"worker {first} has {faults[first]}; install the same there "
            f"(`pip install jupyter_ddl=={__version__}` in the workers' environment) and restart "
            f"them"
        )


def _difference(answer: Mapping[str, Any]) -> str:
    packages = answer["packages"]
    minor = ".".join(str(packages.get("python")).split(".")[:2])
    here = {
        "Python": (minor, ".".join(platform.python_version_tuple()[:2])),
        "jupyter_ddl": (packages.get("jupyter_ddl"), __version__),
        "distributed": (packages.get("distributed"), distributed.__version__),
        "cloudpickle": (packages.get("cloudpickle"), cloudpickle.__version__),
    }
    return ", ".join(
        f"no {name} ({own} here)" if seen is None else f"{name} {seen} ({own} here)"
        for name, (seen, own) in here.items()
        if seen != own
    )


def _unreachable(address: str, why: str) -> ClusterError:
    return ClusterError(f"can't connect to {address}: {why}")


async def n_connected(client: Client) -> int:
    """How many workers a client's scheduler has."""
    identity = await client.scheduler.identity(n_workers=-1)
    return len(identity["workers"])


async def close_client(client: Client) -> None:
    """Let go of a connection, or of what is left of one that was lost."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_S):
            await client.close()
