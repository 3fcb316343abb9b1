// Made by tools/make_types.py from protocol/view_messages.py; `make lint` fails when it is old.
// Numbers that are not finite travel as null, so every float may be null.

/** Version of the package that these types belong to. */
export const VERSION = "0.1.0";

/** Most workers of a cluster. */
export const MAX_WORKERS = 1024;

export interface AskAgain {
  kind: "again";
  seq?: number;
}

export interface BestTrial {
  number: number;
  params: Record<string, boolean | number | null | string>;
  value: number | null;
}

export interface Capabilities {
  has_trials: boolean;
  has_ranks: boolean;
  has_cells: boolean;
  has_items: boolean;
  has_objective: boolean;
  can_resume: boolean;
  stops: ("epoch" | "keep_best" | "next_report" | "now")[];
  brings: "" | "best" | "items" | "ranks";
}

export interface CellRow {
  number: number;
  source: string;
  targets: (number)[];
  outcome: "cancelled" | "complete" | "failed";
  at_s: number | null;
  duration_s: number | null;
  failure: string;
}

export interface ClusterElsewhere {
  name: string;
  place: string;
  text: string;
}

export interface ClusterList {
  kind: "clusters";
  seq: number;
  at_s: number | null;
  clusters: (ClusterStatus)[];
  unreachable: (string)[];
  chosen: string;
  trouble: string;
  elsewhere: (ClusterElsewhere)[];
}

export interface ClusterLogPart {
  kind: "cluster_log";
  id: number;
  cluster: string;
  lines: (string)[];
  n_foreign: number;
}

export interface ClusterStatus {
  name: string;
  backend: string;
  state: "degraded" | "ready" | "starting" | "stopping";
  controller_pid: number;
  scheduler_address: string;
  started_at_s: number | null;
  workers: (WorkerStatus)[];
  n_wanted: number;
  cpus_per_worker: number;
  memory_per_worker_bytes: number | null;
  active_runs: (string)[];
  idle_timeout_s: number | null;
  idle_left_s: number | null;
  age_left_s: number | null;
  adapt: [number, number] | null;
  groups: (GroupStatus)[];
  environment: EnvironmentStatus | null;
  gpus: string;
  trouble: string;
  waiting_runs: (string)[];
  place: Place;
  controller_host: string;
}

export interface ClusterTelemetry {
  seq: number;
  at_s: number | null;
  workers: (WorkerSample)[];
  histories: (WorkerHistory)[];
  verdicts: (string)[];
  n_workers: number;
  gpu_hours: number | null;
  cpu_hours: number | null;
  others: Record<string, (number | null)[]>;
}

export interface ColumnHead {
  group: "last" | "least" | "most" | "param" | "trial";
  name: string;
  kind: "f4" | "f8" | "i4" | "u1" | "u2" | "u4";
  at: number;
  choices: (boolean | number | null | string)[];
}

export interface ColumnsPart {
  kind: "columns";
  id: number;
  run_id: string;
  seq: number;
  part: number;
  n_parts: number;
  n_rows: number;
  n_trials: number;
  n_params: number;
  n_metrics: number;
  columns: (ColumnHead)[];
}

export interface CompareRuns {
  kind: "compare_runs";
  id: number;
  run_id: string;
  others: (string)[];
}

export interface ComparedPart {
  kind: "compared";
  id: number;
  html: string;
}

export interface Counts {
  waiting: number;
  running: number;
  complete: number;
  pruned: number;
  failed: number;
  cancelled: number;
}

export interface CurvesPart {
  kind: "curves";
  id: number;
  run_id: string;
  metric: string;
  curves: (MetricCurve)[];
  metrics: (string)[];
  note: string;
  restarts: (RestartRow)[];
}

export interface DeleteRun {
  kind: "delete_run";
  id: number;
  run_id: string;
}

export interface Denied {
  kind: "denied";
  id: number;
  code: string;
  text: string;
}

export interface Done {
  kind: "done";
  id: number;
  text: string;
}

export interface EnvironmentStatus {
  word: "broken" | "drift" | "same";
  text: string;
  fix: string;
}

export interface Failure {
  kind: "blob" | "crash" | "disk" | "exception" | "hang" | "import" | "launch" | "memory" | "metric" | "timeout" | "values";
  type_name: string;
  message: string;
  traceback: string;
  line: number | null;
  rank: number | null;
}

export interface FormField {
  flag: string;
  help: string;
  metavar: string;
  choices: (string)[];
  is_list: boolean;
}

export interface FormOfBackend {
  name: string;
  purpose: string;
  missing: string;
  has_size: boolean;
  fields: (FormField)[];
}

export interface GetClusterLog {
  kind: "get_cluster_log";
  id: number;
  cluster: string;
  worker?: string | null;
  contains?: string;
  n_lines?: number;
  with_foreign?: boolean;
}

export interface GetColumns {
  kind: "get_columns";
  id: number;
  run_id: string;
  since?: number;
  part?: number;
}

export interface GetCurves {
  kind: "get_curves";
  id: number;
  run_id: string;
  metric?: string;
  axis?: "epoch" | "step" | "time";
  is_best?: boolean;
}

export interface GetHistory {
  kind: "get_history";
  id: number;
  run_id: string;
}

export interface GetImportance {
  kind: "get_importance";
  id: number;
  run_id: string;
}

export interface GetLog {
  kind: "get_log";
  id: number;
  run_id: string;
  trial?: number | null;
  rank?: number | null;
  contains?: string;
  n_lines?: number;
}

export interface GetOutput {
  kind: "get_output";
  id: number;
  run_id: string;
  trial: number;
  file: string;
}

export interface GetStacks {
  kind: "get_stacks";
  id: number;
  run_id: string;
}

export interface GetTrial {
  kind: "get_trial";
  id: number;
  run_id: string;
  trial: number;
}

export interface GpuProcess {
  pid: number;
  memory_bytes: number | null;
}

export interface GpuSample {
  uuid: string;
  index: number;
  name: string;
  utilization: number | null;
  memory_used_bytes: number | null;
  memory_total_bytes: number | null;
  power_w: number | null;
  temperature_c: number | null;
  sm_clock_mhz: number | null;
  processes: (GpuProcess)[];
  parent_uuid: string;
  state: string;
}

export interface GroupStatus {
  group_id: string;
  name: string;
  started_at_s: number | null;
  n_cells: number;
  is_busy: boolean;
  ranks: (RankStatus)[];
  has_process_group: boolean;
}

export interface HangVerdict {
  type: "hang_verdict";
  trial: number;
  attempt: number;
  rank: number;
  at_s: number | null;
  text: string;
  line: number | null;
  is_outside: boolean;
  stacks_file: string;
}

export interface Have {
  kind: "have";
  seq: number;
}

export interface HistoryPart {
  kind: "history";
  id: number;
  run_id: string;
  history: RunHistory;
  note: string;
}

export interface ImportancePart {
  kind: "importance";
  id: number;
  run_id: string;
  shares: ([string, number | null])[];
  n_trials: number;
  note: string;
}

export interface LearningCurve {
  trial: number;
  state: "cancelled" | "complete" | "failed" | "pruned" | "running" | "waiting";
  points: ([number, number | null])[];
}

export interface LogPart {
  kind: "log";
  id: number;
  run_id: string;
  lines: (string)[];
  n_bytes: number;
  path: string;
  outputs: (OutputRow)[];
}

export interface MetricCurve {
  trial: number;
  state: "cancelled" | "complete" | "failed" | "pruned" | "running" | "waiting";
  metric: string;
  points: ([number | null, number | null])[];
}

export interface Nouns {
  trial: string;
  trials: string;
  step: string;
  total: string;
}

export interface OperationRow {
  name: string;
  share: number | null;
  cpu_s: number | null;
  device_s: number | null;
  n_calls: number | null;
}

export interface OutputPart {
  kind: "output";
  id: number;
  run_id: string;
  file: string;
  mime: string;
  content: string;
  alt: string;
}

export interface OutputRow {
  trial: number;
  file: string;
  at_s: number | null;
}

export interface Place {
  cpus: number;
  memory_bytes: number | null;
  n_slots: number;
  labels: Record<string, string>;
  gpus: (string)[];
}

export interface Progress {
  kind: "progress";
  id: number;
  text: string;
}

export interface RankRow {
  rank: number;
  host: string;
  worker: string;
  device: string;
  pid: number;
  state: "running" | "cancelled" | "complete" | "evicted" | "failed" | "moved" | "pruned";
  step: number | null;
  metrics: Record<string, number | null>;
  phase: string;
  heard_at_s: number | null;
  parts: StepParts | null;
  bytes_per_step: number | null;
  peak_memory_bytes: number | null;
}

export interface RankSample {
  run_id: string;
  trial: number;
  rank: number;
  pid: number;
  cpu: number | null;
  memory_bytes: number | null;
  read_bytes_s: number | null;
  write_bytes_s: number | null;
  loader_share: number | null;
  gpus: (string)[];
  is_busy: boolean;
}

export interface RankStacks {
  rank: number;
  is_blamed: boolean;
  text: string;
}

export interface RankStatus {
  rank: number;
  worker: string;
  host: string;
  pid: number;
  device: string;
  log: string;
  log_end: number;
}

export interface RecordTrouble {
  kind: "record";
  seq: number;
  at_s: number | null;
  run_id: string;
  text: string;
}

export interface RestartRow {
  round: number;
  rank: number | null;
  cause: string;
  step: number | null;
  is_over: boolean;
}

export interface ResumeRun {
  kind: "resume_run";
  id: number;
  run_id: string;
}

export interface RunHistory {
  began_s: number | null;
  length_s: number | null;
  noun: string;
  lanes: (string)[];
  bars: ([number, number | null, number | null, string, number, number])[];
  marks: ([number | null, string, number | null, string])[];
  n_bars: number;
  n_hidden: number;
  n_marks: number;
  usage_at_s: (number | null)[];
  cpu: (number | null)[];
  gpu: (number | null)[];
  memory: (number | null)[];
}

export interface RunLine {
  run_id: string;
  name: string;
  verb: string;
  can: Capabilities;
  nouns: Nouns;
  cluster: string;
  state: "cancelled" | "complete" | "failed" | "running" | "starting" | "submitted";
  created_at_s: number | null;
  finished_at_s: number | null;
  n_trials: number;
  n_finished: number | null;
  step: number | null;
  round: number;
  best: number | null;
  metric: string | null;
  live: boolean;
  recovering: boolean;
  waits: boolean;
  is_damaged: boolean;
  cost: number | null;
  currency: string;
}

export interface RunList {
  kind: "runs";
  seq: number;
  at_s: number | null;
  runs: (RunLine)[];
  trouble: string;
}

export interface RunSnapshot {
  seq: number;
  run_id: string;
  name: string;
  verb: string;
  can: Capabilities;
  nouns: Nouns;
  state: "cancelled" | "complete" | "failed" | "running" | "starting" | "submitted";
  cluster: string;
  created_at_s: number | null;
  n_trials: number;
  counts: Counts;
  started_at_s: number | null;
  finished_at_s: number | null;
  metric: string | null;
  mode: "max" | "min";
  sampler: string;
  pruner: string;
  best: BestTrial | null;
  rows: (TrialRow)[];
  curve: ([number, number | null])[];
  pruned: (number)[];
  best_curve: ([number, number | null])[];
  learning: (LearningCurve)[];
  trials_per_s: number | null;
  ends_at_s: number | null;
  n_evictions: number;
  notices: (string)[];
  paused: string;
  driver: "live" | "none" | "recovering";
  stopping: boolean;
  reason: string;
  failure: Failure | null;
  failed_trial: number | null;
  cells: (CellRow)[];
  ranks: (RankRow)[];
  world_size: number;
  n_to_come: number;
  round: number;
  max_rounds: number;
  restarts: (RestartRow)[];
  checkpoint_step: number | null;
  series: Record<string, ([number, number | null])[]>;
  metrics: (string)[];
  n_metrics: number;
  hang: HangVerdict | null;
  step_verdict: string;
  bytes_sent: number | null;
  outputs: (OutputRow)[];
  n_outputs: number;
  charts: (OutputRow)[];
  operations: (OperationRow)[];
  traces: (TraceRow)[];
  usage: Usage | null;
  spending: (SpendingRow)[];
}

export interface RunView {
  kind: "run";
  seq: number;
  at_s: number | null;
  snapshot: RunSnapshot;
}

export interface ScaleCluster {
  kind: "scale_cluster";
  id: number;
  cluster: string;
  n_workers: number;
}

export interface Seen {
  kind: "seen";
  run_id: string;
}

export interface SpendingRow {
  unit: "cpuh" | "gpuh" | "money";
  currency: string;
  amount: number | null;
  at_s: number | null;
  per_hour: number | null;
  budget: number | null;
}

export interface StacksPart {
  kind: "stacks";
  id: number;
  run_id: string;
  ranks: (RankStacks)[];
  n_ranks: number;
}

export interface StartCluster {
  kind: "start_cluster";
  id: number;
  name?: string;
  backend?: string;
  n_workers?: number | null;
  cpus_per_worker?: number;
  memory_per_worker_bytes?: number | null;
  idle_timeout_s?: number | null;
  max_age_s?: number | null;
  options?: (string)[];
}

export interface StepParts {
  n_steps: number;
  step_s: number | null;
  data_s: number | null;
  compute_s: number | null;
  waiting_s: number | null;
  exchange_s: number | null;
  samples_s: number | null;
  n_workers: number | null;
  gradient_norm: number | null;
}

export interface StopCluster {
  kind: "stop_cluster";
  id: number;
  cluster: string;
}

export interface StopRun {
  kind: "stop_run";
  id: number;
  run_id: string;
  how?: "epoch" | "keep_best" | "next_report" | "now";
}

export interface StopTrial {
  kind: "stop_trial";
  id: number;
  run_id: string;
  trial: number;
}

export interface TelemetryView {
  kind: "telemetry";
  seq: number;
  cluster: string;
  telemetry: ClusterTelemetry;
  run_id: string;
}

export interface TraceRow {
  trial: number;
  rank: number;
  file: string;
  size_bytes: number;
}

export interface TrialPart {
  kind: "trial";
  id: number;
  run_id: string;
  row: TrialRow;
  curves: (MetricCurve)[];
  cell: string;
  note: string;
  steps: string;
}

export interface TrialRow {
  number: number;
  state: "cancelled" | "complete" | "failed" | "pruned" | "running" | "waiting";
  params: Record<string, boolean | number | null | string>;
  value: number | null;
  step: number | null;
  metrics: Record<string, number | null>;
  attempts: number;
  own_failures: number;
  evictions: number;
  worker: string;
  started_at_s: number | null;
  duration_s: number | null;
  failure: Failure | null;
}

export interface Unwatch {
  kind: "unwatch";
  id: number;
  run_id: string;
}

export interface UnwatchCluster {
  kind: "unwatch_cluster";
  id: number;
  cluster: string;
}

export interface Usage {
  cpu_hours: number | null;
  gpu_hours: number | null;
  peak_memory_bytes: (number | null)[];
}

export interface UseCluster {
  kind: "use_cluster";
  id: number;
  cluster: string;
}

export interface WatchCluster {
  kind: "watch_cluster";
  id: number;
  cluster: string;
}

export interface WatchRun {
  kind: "watch";
  id: number;
  run_id: string;
}

export interface Welcome {
  kind: "welcome";
  seq: number;
  at_s: number | null;
  version: string;
  backends: (FormOfBackend)[];
}

export interface WorkerHistory {
  worker: string;
  at_s: (number | null)[];
  cpu: (number | null)[];
  memory_bytes: (number | null)[];
  gpu: Record<string, (number | null)[]>;
  gpu_memory: Record<string, (number | null)[]>;
}

export interface WorkerSample {
  worker: string;
  host: string;
  at_s: number | null;
  cpu: number | null;
  n_cpus: number | null;
  memory_bytes: number | null;
  memory_limit_bytes: number | null;
  read_bytes_s: number | null;
  write_bytes_s: number | null;
  received_bytes_s: number | null;
  sent_bytes_s: number | null;
  gpu_state: string;
  gpus: (GpuSample)[];
  ranks: (RankSample)[];
}

export interface WorkerStatus {
  name: string;
  address: string;
  host: string;
  n_slots: number;
  n_busy: number;
}

export interface WriteTensorboard {
  kind: "tensorboard";
  id: number;
  run_id: string;
}

export type ToBrowser =
  | RunView
  | TelemetryView
  | RecordTrouble
  | ColumnsPart
  | LogPart
  | OutputPart
  | ImportancePart
  | CurvesPart
  | TrialPart
  | HistoryPart
  | ClusterList
  | RunList
  | Welcome
  | ClusterLogPart
  | StacksPart
  | ComparedPart
  | Progress
  | Done
  | Denied;

export type FromBrowser =
  | AskAgain
  | Have
  | Seen
  | WatchRun
  | Unwatch
  | StopRun
  | StopTrial
  | ResumeRun
  | GetColumns
  | GetLog
  | GetOutput
  | GetImportance
  | GetCurves
  | GetTrial
  | GetHistory
  | GetStacks
  | CompareRuns
  | DeleteRun
  | WriteTensorboard
  | UseCluster
  | WatchCluster
  | UnwatchCluster
  | StartCluster
  | ScaleCluster
  | StopCluster
  | GetClusterLog;

/** What a value must look like; names in `struct` are keys of STRUCTS. */
export type Shape =
  | 'string'
  | 'int'
  | 'number'
  | 'boolean'
  | 'null'
  | { list: Shape }
  | { tuple: Shape[] }
  | { map: Shape }
  | { any: Shape[] }
  | { one: (string | number)[] }
  | { struct: string };

export const STRUCTS: Record<string, Record<string, Shape>> = {
  BestTrial: {"number": "int", "params": {"map": {"any": ["boolean", "int", "number", "string", "null"]}}, "value": "number"},
  Capabilities: {"has_trials": "boolean", "has_ranks": "boolean", "has_cells": "boolean", "has_items": "boolean", "has_objective": "boolean", "can_resume": "boolean", "stops": {"list": {"one": ["epoch", "keep_best", "next_report", "now"]}}, "brings": {"one": ["", "best", "items", "ranks"]}},
  CellRow: {"number": "int", "source": "string", "targets": {"list": "int"}, "outcome": {"one": ["cancelled", "complete", "failed"]}, "at_s": "number", "duration_s": "number", "failure": "string"},
  ClusterElsewhere: {"name": "string", "place": "string", "text": "string"},
  ClusterList: {"kind": {"one": ["clusters"]}, "seq": "int", "at_s": "number", "clusters": {"list": {"struct": "ClusterStatus"}}, "unreachable": {"list": "string"}, "chosen": "string", "trouble": "string", "elsewhere": {"list": {"struct": "ClusterElsewhere"}}},
  ClusterLogPart: {"kind": {"one": ["cluster_log"]}, "id": "int", "cluster": "string", "lines": {"list": "string"}, "n_foreign": "int"},
  ClusterStatus: {"name": "string", "backend": "string", "state": {"one": ["degraded", "ready", "starting", "stopping"]}, "controller_pid": "int", "scheduler_address": "string", "started_at_s": "number", "workers": {"list": {"struct": "WorkerStatus"}}, "n_wanted": "int", "cpus_per_worker": "int", "memory_per_worker_bytes": {"any": ["int", "null"]}, "active_runs": {"list": "string"}, "idle_timeout_s": "number", "idle_left_s": {"any": ["number", "null"]}, "age_left_s": "number", "adapt": {"any": [{"tuple": ["int", "int"]}, "null"]}, "groups": {"list": {"struct": "GroupStatus"}}, "environment": {"any": [{"struct": "EnvironmentStatus"}, "null"]}, "gpus": "string", "trouble": "string", "waiting_runs": {"list": "string"}, "place": {"struct": "Place"}, "controller_host": "string"},
  ClusterTelemetry: {"seq": "int", "at_s": "number", "workers": {"list": {"struct": "WorkerSample"}}, "histories": {"list": {"struct": "WorkerHistory"}}, "verdicts": {"list": "string"}, "n_workers": "int", "gpu_hours": {"any": ["number", "null"]}, "cpu_hours": {"any": ["number", "null"]}, "others": {"map": {"list": {"any": ["number", "null"]}}}},
  ColumnHead: {"group": {"one": ["last", "least", "most", "param", "trial"]}, "name": "string", "kind": {"one": ["f4", "f8", "i4", "u1", "u2", "u4"]}, "at": "int", "choices": {"any": [{"list": {"any": ["boolean", "int", "number", "string", "null"]}}, "null"]}},
  ColumnsPart: {"kind": {"one": ["columns"]}, "id": "int", "run_id": "string", "seq": "int", "part": "int", "n_parts": "int", "n_rows": "int", "n_trials": "int", "n_params": "int", "n_metrics": "int", "columns": {"list": {"struct": "ColumnHead"}}},
  ComparedPart: {"kind": {"one": ["compared"]}, "id": "int", "html": "string"},
  Counts: {"waiting": "int", "running": "int", "complete": "int", "pruned": "int", "failed": "int", "cancelled": "int"},
  CurvesPart: {"kind": {"one": ["curves"]}, "id": "int", "run_id": "string", "metric": "string", "curves": {"list": {"struct": "MetricCurve"}}, "metrics": {"list": "string"}, "note": "string", "restarts": {"list": {"struct": "RestartRow"}}},
  Denied: {"kind": {"one": ["denied"]}, "id": "int", "code": "string", "text": "string"},
  Done: {"kind": {"one": ["done"]}, "id": "int", "text": "string"},
  EnvironmentStatus: {"word": {"one": ["broken", "drift", "same"]}, "text": "string", "fix": "string"},
  Failure: {"kind": {"one": ["blob", "crash", "disk", "exception", "hang", "import", "launch", "memory", "metric", "timeout", "values"]}, "type_name": "string", "message": "string", "traceback": "string", "line": {"any": ["int", "null"]}, "rank": {"any": ["int", "null"]}},
  FormField: {"flag": "string", "help": "string", "metavar": "string", "choices": {"list": "string"}, "is_list": "boolean"},
  FormOfBackend: {"name": "string", "purpose": "string", "missing": "string", "has_size": "boolean", "fields": {"list": {"struct": "FormField"}}},
  GpuProcess: {"pid": "int", "memory_bytes": {"any": ["int", "null"]}},
  GpuSample: {"uuid": "string", "index": "int", "name": "string", "utilization": {"any": ["number", "null"]}, "memory_used_bytes": {"any": ["int", "null"]}, "memory_total_bytes": {"any": ["int", "null"]}, "power_w": {"any": ["number", "null"]}, "temperature_c": {"any": ["number", "null"]}, "sm_clock_mhz": {"any": ["number", "null"]}, "processes": {"list": {"struct": "GpuProcess"}}, "parent_uuid": "string", "state": "string"},
  GroupStatus: {"group_id": "string", "name": "string", "started_at_s": "number", "n_cells": "int", "is_busy": "boolean", "ranks": {"list": {"struct": "RankStatus"}}, "has_process_group": "boolean"},
  HangVerdict: {"type": {"one": ["hang_verdict"]}, "trial": "int", "attempt": "int", "rank": "int", "at_s": "number", "text": "string", "line": {"any": ["int", "null"]}, "is_outside": "boolean", "stacks_file": "string"},
  HistoryPart: {"kind": {"one": ["history"]}, "id": "int", "run_id": "string", "history": {"struct": "RunHistory"}, "note": "string"},
  ImportancePart: {"kind": {"one": ["importance"]}, "id": "int", "run_id": "string", "shares": {"list": {"tuple": ["string", "number"]}}, "n_trials": "int", "note": "string"},
  LearningCurve: {"trial": "int", "state": {"one": ["cancelled", "complete", "failed", "pruned", "running", "waiting"]}, "points": {"list": {"tuple": ["int", "number"]}}},
  LogPart: {"kind": {"one": ["log"]}, "id": "int", "run_id": "string", "lines": {"list": "string"}, "n_bytes": "int", "path": "string", "outputs": {"list": {"struct": "OutputRow"}}},
  MetricCurve: {"trial": "int", "state": {"one": ["cancelled", "complete", "failed", "pruned", "running", "waiting"]}, "metric": "string", "points": {"list": {"tuple": ["number", "number"]}}},
  Nouns: {"trial": "string", "trials": "string", "step": "string", "total": "string"},
  OperationRow: {"name": "string", "share": "number", "cpu_s": "number", "device_s": "number", "n_calls": "number"},
  OutputPart: {"kind": {"one": ["output"]}, "id": "int", "run_id": "string", "file": "string", "mime": "string", "content": "string", "alt": "string"},
  OutputRow: {"trial": "int", "file": "string", "at_s": "number"},
  Place: {"cpus": "int", "memory_bytes": {"any": ["int", "null"]}, "n_slots": "int", "labels": {"map": "string"}, "gpus": {"list": "string"}},
  Progress: {"kind": {"one": ["progress"]}, "id": "int", "text": "string"},
  RankRow: {"rank": "int", "host": "string", "worker": "string", "device": "string", "pid": "int", "state": {"any": [{"one": ["running"]}, {"one": ["cancelled", "complete", "evicted", "failed", "moved", "pruned"]}]}, "step": {"any": ["int", "null"]}, "metrics": {"map": {"any": ["number", "null"]}}, "phase": "string", "heard_at_s": {"any": ["number", "null"]}, "parts": {"any": [{"struct": "StepParts"}, "null"]}, "bytes_per_step": {"any": ["number", "null"]}, "peak_memory_bytes": {"any": ["int", "null"]}},
  RankSample: {"run_id": "string", "trial": "int", "rank": "int", "pid": "int", "cpu": {"any": ["number", "null"]}, "memory_bytes": {"any": ["int", "null"]}, "read_bytes_s": {"any": ["number", "null"]}, "write_bytes_s": {"any": ["number", "null"]}, "loader_share": {"any": ["number", "null"]}, "gpus": {"list": "string"}, "is_busy": "boolean"},
  RankStacks: {"rank": "int", "is_blamed": "boolean", "text": "string"},
  RankStatus: {"rank": "int", "worker": "string", "host": "string", "pid": "int", "device": "string", "log": "string", "log_end": "int"},
  RecordTrouble: {"kind": {"one": ["record"]}, "seq": "int", "at_s": "number", "run_id": "string", "text": "string"},
  RestartRow: {"round": "int", "rank": {"any": ["int", "null"]}, "cause": "string", "step": {"any": ["int", "null"]}, "is_over": "boolean"},
  RunHistory: {"began_s": "number", "length_s": "number", "noun": "string", "lanes": {"list": "string"}, "bars": {"list": {"tuple": ["int", "number", "number", "string", "int", "int"]}}, "marks": {"list": {"tuple": ["number", "string", {"any": ["int", "null"]}, "string"]}}, "n_bars": "int", "n_hidden": "int", "n_marks": "int", "usage_at_s": {"list": "number"}, "cpu": {"list": {"any": ["number", "null"]}}, "gpu": {"list": {"any": ["number", "null"]}}, "memory": {"list": {"any": ["number", "null"]}}},
  RunLine: {"run_id": "string", "name": "string", "verb": "string", "can": {"struct": "Capabilities"}, "nouns": {"struct": "Nouns"}, "cluster": "string", "state": {"one": ["cancelled", "complete", "failed", "running", "starting", "submitted"]}, "created_at_s": "number", "finished_at_s": {"any": ["number", "null"]}, "n_trials": "int", "n_finished": {"any": ["int", "null"]}, "step": {"any": ["int", "null"]}, "round": "int", "best": {"any": ["number", "null"]}, "metric": {"any": ["string", "null"]}, "live": "boolean", "recovering": "boolean", "waits": "boolean", "is_damaged": "boolean", "cost": {"any": ["number", "null"]}, "currency": "string"},
  RunList: {"kind": {"one": ["runs"]}, "seq": "int", "at_s": "number", "runs": {"list": {"struct": "RunLine"}}, "trouble": "string"},
  RunSnapshot: {"seq": "int", "run_id": "string", "name": "string", "verb": "string", "can": {"struct": "Capabilities"}, "nouns": {"struct": "Nouns"}, "state": {"one": ["cancelled", "complete", "failed", "running", "starting", "submitted"]}, "cluster": "string", "created_at_s": "number", "n_trials": "int", "counts": {"struct": "Counts"}, "started_at_s": {"any": ["number", "null"]}, "finished_at_s": {"any": ["number", "null"]}, "metric": {"any": ["string", "null"]}, "mode": {"one": ["max", "min"]}, "sampler": "string", "pruner": "string", "best": {"any": [{"struct": "BestTrial"}, "null"]}, "rows": {"list": {"struct": "TrialRow"}}, "curve": {"list": {"tuple": ["int", "number"]}}, "pruned": {"list": "int"}, "best_curve": {"list": {"tuple": ["int", "number"]}}, "learning": {"list": {"struct": "LearningCurve"}}, "trials_per_s": {"any": ["number", "null"]}, "ends_at_s": {"any": ["number", "null"]}, "n_evictions": "int", "notices": {"list": "string"}, "paused": "string", "driver": {"one": ["live", "none", "recovering"]}, "stopping": "boolean", "reason": "string", "failure": {"any": [{"struct": "Failure"}, "null"]}, "failed_trial": {"any": ["int", "null"]}, "cells": {"list": {"struct": "CellRow"}}, "ranks": {"list": {"struct": "RankRow"}}, "world_size": "int", "n_to_come": "int", "round": "int", "max_rounds": "int", "restarts": {"list": {"struct": "RestartRow"}}, "checkpoint_step": {"any": ["int", "null"]}, "series": {"map": {"list": {"tuple": ["int", "number"]}}}, "metrics": {"list": "string"}, "n_metrics": "int", "hang": {"any": [{"struct": "HangVerdict"}, "null"]}, "step_verdict": "string", "bytes_sent": {"any": ["int", "null"]}, "outputs": {"list": {"struct": "OutputRow"}}, "n_outputs": "int", "charts": {"list": {"struct": "OutputRow"}}, "operations": {"list": {"struct": "OperationRow"}}, "traces": {"list": {"struct": "TraceRow"}}, "usage": {"any": [{"struct": "Usage"}, "null"]}, "spending": {"list": {"struct": "SpendingRow"}}},
  RunView: {"kind": {"one": ["run"]}, "seq": "int", "at_s": "number", "snapshot": {"struct": "RunSnapshot"}},
  SpendingRow: {"unit": {"one": ["cpuh", "gpuh", "money"]}, "currency": "string", "amount": "number", "at_s": "number", "per_hour": "number", "budget": {"any": ["number", "null"]}},
  StacksPart: {"kind": {"one": ["stacks"]}, "id": "int", "run_id": "string", "ranks": {"list": {"struct": "RankStacks"}}, "n_ranks": "int"},
  StepParts: {"n_steps": "int", "step_s": "number", "data_s": "number", "compute_s": "number", "waiting_s": {"any": ["number", "null"]}, "exchange_s": {"any": ["number", "null"]}, "samples_s": {"any": ["number", "null"]}, "n_workers": {"any": ["int", "null"]}, "gradient_norm": {"any": ["number", "null"]}},
  TelemetryView: {"kind": {"one": ["telemetry"]}, "seq": "int", "cluster": "string", "telemetry": {"struct": "ClusterTelemetry"}, "run_id": "string"},
  TraceRow: {"trial": "int", "rank": "int", "file": "string", "size_bytes": "int"},
  TrialPart: {"kind": {"one": ["trial"]}, "id": "int", "run_id": "string", "row": {"struct": "TrialRow"}, "curves": {"list": {"struct": "MetricCurve"}}, "cell": "string", "note": "string", "steps": "string"},
  TrialRow: {"number": "int", "state": {"one": ["cancelled", "complete", "failed", "pruned", "running", "waiting"]}, "params": {"map": {"any": ["boolean", "int", "number", "string", "null"]}}, "value": {"any": ["number", "null"]}, "step": {"any": ["int", "null"]}, "metrics": {"map": {"any": ["number", "null"]}}, "attempts": "int", "own_failures": "int", "evictions": "int", "worker": "string", "started_at_s": {"any": ["number", "null"]}, "duration_s": {"any": ["number", "null"]}, "failure": {"any": [{"struct": "Failure"}, "null"]}},
  Usage: {"cpu_hours": "number", "gpu_hours": "number", "peak_memory_bytes": {"list": {"any": ["int", "null"]}}},
  Welcome: {"kind": {"one": ["welcome"]}, "seq": "int", "at_s": "number", "version": "string", "backends": {"list": {"struct": "FormOfBackend"}}},
  WorkerHistory: {"worker": "string", "at_s": {"list": "number"}, "cpu": {"list": {"any": ["number", "null"]}}, "memory_bytes": {"list": {"any": ["int", "null"]}}, "gpu": {"map": {"list": {"any": ["number", "null"]}}}, "gpu_memory": {"map": {"list": {"any": ["number", "null"]}}}},
  WorkerSample: {"worker": "string", "host": "string", "at_s": "number", "cpu": {"any": ["number", "null"]}, "n_cpus": {"any": ["number", "null"]}, "memory_bytes": {"any": ["int", "null"]}, "memory_limit_bytes": {"any": ["int", "null"]}, "read_bytes_s": {"any": ["number", "null"]}, "write_bytes_s": {"any": ["number", "null"]}, "received_bytes_s": {"any": ["number", "null"]}, "sent_bytes_s": {"any": ["number", "null"]}, "gpu_state": "string", "gpus": {"list": {"struct": "GpuSample"}}, "ranks": {"list": {"struct": "RankSample"}}},
  WorkerStatus: {"name": "string", "address": "string", "host": "string", "n_slots": "int", "n_busy": "int"}
};

export const TO_BROWSER: Record<string, string> = {
  run: "RunView",
  telemetry: "TelemetryView",
  record: "RecordTrouble",
  columns: "ColumnsPart",
  log: "LogPart",
  output: "OutputPart",
  importance: "ImportancePart",
  curves: "CurvesPart",
  trial: "TrialPart",
  history: "HistoryPart",
  clusters: "ClusterList",
  runs: "RunList",
  welcome: "Welcome",
  cluster_log: "ClusterLogPart",
  stacks: "StacksPart",
  compared: "ComparedPart",
  progress: "Progress",
  done: "Done",
  denied: "Denied"
};
