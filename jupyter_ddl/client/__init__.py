"""The notebook's side of controllers.  Calling this module connects plain Dask code.

``jupyter_ddl.client()`` is the public name of :func:`.dask_client.connect_client`, and this package
has the same name; so the package can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distributed import Client


class _CallablePackage(ModuleType):
    def __call__(self) -> Client:
        """See :func:`jupyter_ddl.client.dask_client.connect_client`."""
        from jupyter_ddl.client.dask_client import connect_client

        return connect_client()


sys.modules[__name__].__class__ = _CallablePackage
