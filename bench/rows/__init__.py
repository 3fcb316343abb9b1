"""The rows of the report, in the order of the issue's table."""

import os

from bench.rows.captured import ROW as CAPTURED
from bench.rows.cell_alive import ROW as CELL_ALIVE
from bench.rows.ddp_speed import ROW as DDP_SPEED
from bench.rows.ddp_start import ROW as DDP_START
from bench.rows.environment import ROW as ENVIRONMENT
from bench.rows.first_report import ROW as FIRST_REPORT
from bench.rows.fit import ROW as FIT
from bench.rows.flood import ROW as FLOOD
from bench.rows.idle import ROW as IDLE
from bench.rows.kube import ROW as KUBE
from bench.rows.live_page import ROW as LIVE_PAGE
from bench.rows.load_ext import ROW as LOAD_EXT
from bench.rows.many_trials import ROW as MANY_TRIALS
from bench.rows.memory import ROW as MEMORY
from bench.rows.notebook_scroll import ROW as NOTEBOOK_SCROLL
from bench.rows.panel_scroll import ROW as PANEL_SCROLL
from bench.rows.reload import ROW as RELOAD
from bench.rows.run_cell import ROW as RUN_CELL
from bench.rows.settings import ROW as SETTINGS
from bench.rows.start import ROW as START
from bench.rows.step_times import ROW as STEP_TIMES
from bench.rows.stop import ROW as STOP
from bench.rows.strategies import ROW as STRATEGIES
from bench.rows.telemetry import ROW as TELEMETRY
from bench.rows.telemetry_load import ROW as TELEMETRY_LOAD
from bench.rows.torch_start import ROW as TORCH_START
from bench.rows.trials import ROW as TRIALS
from bench.rows.warm import ROW as WARM
from bench.rows.watching import ROW as WATCHING

__all__ = ["ROWS"]

ROWS = (
    TRIALS,
    START,
    TORCH_START,
    FIRST_REPORT,
    CAPTURED,
    MEMORY,
    LOAD_EXT,
    ENVIRONMENT,
    IDLE,
    WATCHING,
    WARM,
    DDP_START,
    DDP_SPEED,
    TELEMETRY,
    STEP_TIMES,
    STRATEGIES,
    TELEMETRY_LOAD,
    FLOOD,
    LIVE_PAGE,
    MANY_TRIALS,
    PANEL_SCROLL,
    NOTEBOOK_SCROLL,
    RELOAD,
    CELL_ALIVE,
    STOP,
    RUN_CELL,
    FIT,
    SETTINGS,
    # Where there is a Kubernetes.
    *((KUBE,) if os.environ.get("JUPYTER_DDL_TEST_IMAGE") else ()),
)
