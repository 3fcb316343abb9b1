"""Sees that a node of a cluster's workers is about to go, and has them leave it in time.

A pod on such a node is deleted as a drain would: it gets SIGTERM with its whole time of grace, its
ranks save and leave, and Kubernetes makes another one on another node meanwhile.  Without a right
to read nodes nothing is seen, and the same begins with the SIGTERM of whoever takes the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.names import DASK_LABEL
from jupyter_ddl.backends.kubernetes.pod_status import is_ending
from jupyter_ddl.backends.kubernetes.spot import notice_of
from jupyter_ddl.errors import BackendError
from jupyter_ddl.formats import format_counted

__all__ = ["NodeWatch"]

log = logging.getLogger(__name__)

_N_AT_ONCE = 16
"""Nodes that are asked for in one look, in turn: their objects are large."""

Json = dict[str, Any]


class NodeWatch:
    """Used on the controller's loop only.

    Parameters
    ----------
    more : iterable of str
        Keys of taints that announce an end, beside those that are known.
    """

    def __init__(self, api: KubeApi, more: Iterable[str] = ()) -> None:
        self._api = api
        self._more = tuple(more)
        self._going: dict[str, str] = {}
        """Nodes whose pods were told to go, and the taint."""
        self._next = 0

    async def may_look(self) -> bool:
        """Whether these credentials can see a node's end, and have pods leave it."""
        nodes, pods = await asyncio.gather(
            self._api.may("get", "", "nodes", everywhere=True),
            self._api.may("delete", "", "pods"),
        )
        return nodes and pods

    async def poll(self, cluster: str) -> list[str]:
        """Have pods leave nodes that are about to go; a sentence about each such node.

        A node whose pods can't be told to go hinders no other, and is tried again.

        Raises
        ------
        BackendError
            The API server refused, and there is nothing to tell.
        """
        selector = f"{DASK_LABEL}={cluster},dask.org/component=worker"
        by_node: dict[str, list[str]] = {}
        for pod in await self._api.list("pods", labelSelector=selector):
            node = str(pod["spec"].get("nodeName", ""))
            if node and not is_ending(pod):
                by_node.setdefault(node, []).append(str(pod["metadata"]["name"]))
        asked = self._in_turn(sorted(by_node))
        taints = await asyncio.gather(*map(self._notice, asked))
        told: list[str] = []
        refused: BackendError | None = None
        for node, taint in zip(asked, taints, strict=True):
            if self._is_new(node, taint):
                try:
                    told.append(await self._leave(node, taint, by_node))
                except BackendError as error:
                    refused = error
        if refused is not None and not told:
            raise refused
        return told

    def _in_turn(self, nodes: list[str]) -> list[str]:
        begin = self._next if self._next < len(nodes) else 0
        self._next = begin + _N_AT_ONCE
        return nodes[begin : begin + _N_AT_ONCE]

    async def _notice(self, node: str) -> str:
        try:
            return notice_of(await self._api.get("nodes", node), self._more)
        except BackendError as error:
            if error.status == 404:
                return ""  # it is gone: its pods are lost, which others see
            raise

    def _is_new(self, node: str, taint: str) -> bool:
        """Once for each notice: a pod that came later tolerates it, and would come back again."""
        if not taint:
            self._going.pop(node, None)
            return False
        return self._going.get(node) != taint

    async def _leave(self, node: str, taint: str, by_node: Mapping[str, list[str]]) -> str:
        names = by_node[node]
        await asyncio.gather(*(self._api.delete("pods", name) for name in names))
        self._going[node] = taint
        return (
            f"node {node} is about to be taken away (taint {taint}): "
            f"{format_counted(len(names), 'worker')} on it leave, ranks save first"
        )
