"""What a pipeline was like: its stages, and when each rank computed what in one batch."""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_ddl.protocol.telemetry import Finite

__all__ = ["PipelineSpan", "PipelineStageCut", "PipelineTimes", "SpanKind"]

SpanKind = Literal["forward", "backward", "input", "weight"]
"""``input`` and ``weight`` are the halves of a backward pass, which zerobubble parts."""


class PipelineStageCut(msgspec.Struct, frozen=True):
    """Some neighbouring parts of a model, on one rank."""

    rank: int
    first: str
    last: str
    """Names of parts within the model."""
    n_parts: int
    forward_s: Finite
    """Of one micro-batch, as measured before the cut."""
    n_bytes: int
    """Of parameters and buffers."""
    kept_bytes: int = 0
    """Of one micro-batch, for the backward pass, as measured before the cut."""


class PipelineSpan(msgspec.Struct, frozen=True, array_like=True):
    """One computation, in seconds since the batch began."""

    rank: int
    """In the pipeline."""
    stage: int
    kind: SpanKind
    microbatch: int
    start_s: Finite
    end_s: Finite


class PipelineTimes(msgspec.Struct, frozen=True):
    """One batch, measured beside what the schedule would take if only computing took time."""

    step: int
    """Number of the batch since the round began, from 1."""
    n_ranks: int
    """Of the pipeline."""
    schedule: str
    n_microbatches: int
    stages: tuple[PipelineStageCut, ...]
    idle_share: Finite
    """Of the ranks' time from the first computation to the last."""
    ideal_idle_share: Finite
    spans: tuple[PipelineSpan, ...] = ()
    """Empty where there are too many to be drawn."""
    ideal: tuple[PipelineSpan, ...] = ()
    """The same order in units of a forward pass; empty as ``spans``."""
    n_copies: int = 1
    """Pipelines side by side, of which this is the first; its ranks are this far apart."""
