"""A sampler of the user's own, asked over the cluster: it lives in a rank, never here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jupyter_ddl.spec.sampling import TrialRecord
from jupyter_ddl.spec.space import ParamValue

__all__ = ["SamplerLink"]


class SamplerLink(Protocol):
    """Tell and ask one sampler; raises :class:`TrialError` with the user's line when it fails."""

    async def ask(
        self, number: int, tells: Sequence[TrialRecord]
    ) -> dict[str, ParamValue] | None: ...

    async def finish(self, tells: Sequence[TrialRecord]) -> None: ...
