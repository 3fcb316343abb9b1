/** What is known about clusters and runs, from the newest messages. */

import { VERSION } from '../protocol';
import type {
  ClusterElsewhere,
  ClusterStatus,
  ClusterTelemetry,
  FormOfBackend,
  RecordTrouble,
  RunLine,
  RunView,
  TelemetryView,
  ToBrowser
} from '../protocol';
import type { LinkState } from './link';

/** One moment; a new object whenever something has changed. */
export interface Known {
  state: LinkState;
  /** Whether the lists have come yet. */
  hasClusters: boolean;
  hasRuns: boolean;
  clusters: readonly ClusterStatus[];
  unreachable: readonly string[];
  /** Clusters that run elsewhere and are not connected to yet. */
  elsewhere: readonly ClusterElsewhere[];
  /** Why what is listed may be old; empty while the server can look. */
  clustersTrouble: string;
  runsTrouble: string;
  /** When `clusters` came, in milliseconds of this browser: what is left is counted from there. */
  clustersAt_ms: number;
  runs: readonly RunLine[];
  telemetry: ReadonlyMap<string, ClusterTelemetry>;
  /** Of several, the one that a new notebook uses. */
  chosen: string;
  backends: readonly FormOfBackend[];
  /** Add to this browser's clock for the server's, in seconds. */
  clockOffset_s: number;
  /** Not empty when the server has another version of the package. */
  otherVersion: string;
}

const NOTHING: Known = {
  state: 'connecting',
  hasClusters: false,
  hasRuns: false,
  clusters: [],
  unreachable: [],
  elsewhere: [],
  clustersTrouble: '',
  runsTrouble: '',
  clustersAt_ms: 0,
  runs: [],
  telemetry: new Map(),
  chosen: '',
  backends: [],
  clockOffset_s: 0,
  otherVersion: ''
};

/** What the server tells of one run. */
export type RunNews = RunView | TelemetryView | RecordTrouble;
export type RunListener = (message: RunNews) => void;

export class Store {
  /** Drawings per second at most. */
  refreshPerSecond = 4;

  get known(): Known {
    return this._known;
  }

  /** For React's useSyncExternalStore. */
  readonly read = (): Known => this._known;

  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  };

  /** Hear every message about one run, at once those that others who hear it have heard last. */
  onRun(runId: string, listener: RunListener): () => void {
    const run = this._runs.get(runId) ?? { listeners: new Set(), newest: new Map() };
    this._runs.set(runId, run);
    run.listeners.add(listener);
    run.newest.forEach(message => listener(message));
    return () => {
      run.listeners.delete(listener);
      if (run.listeners.size === 0) {
        this._runs.delete(runId);
      }
    };
  }

  setState(state: LinkState): void {
    this._change({ state });
    // A lost connection is shown at once.
    this._flush();
  }

  hear(message: ToBrowser): void {
    switch (message.kind) {
      case 'welcome':
        this._change({
          backends: message.backends,
          otherVersion: message.version === VERSION ? '' : message.version,
          clockOffset_s: offsetOf(message.at_s)
        });
        break;
      case 'clusters':
        this._change({
          hasClusters: true,
          clusters: message.clusters,
          unreachable: message.unreachable,
          elsewhere: message.elsewhere,
          clustersTrouble: message.trouble,
          chosen: message.chosen,
          clustersAt_ms: Date.now(),
          clockOffset_s: offsetOf(message.at_s),
          telemetry: this._telemetryOf(message.clusters)
        });
        break;
      case 'runs':
        this._change({
          hasRuns: true,
          runs: message.runs,
          runsTrouble: message.trouble,
          clockOffset_s: offsetOf(message.at_s)
        });
        break;
      case 'telemetry':
        if (message.run_id === '') {
          const telemetry = new Map(this._latest.telemetry).set(
            message.cluster,
            message.telemetry
          );
          this._change({ telemetry });
        } else {
          this._tellRun(message.run_id, message);
        }
        break;
      case 'record':
        this._tellRun(message.run_id, message);
        break;
      case 'run':
        this._tellRun(message.snapshot.run_id, message);
    }
  }

  dispose(): void {
    if (this._timer !== null) {
      clearTimeout(this._timer);
    }
    this._listeners.clear();
    this._runs.clear();
  }

  private _tellRun(runId: string, message: RunNews): void {
    const run = this._runs.get(runId);
    run?.newest.set(message.kind, message);
    run?.listeners.forEach(listener => listener(message));
  }

  /** Without the clusters that have ended. */
  private _telemetryOf(clusters: readonly ClusterStatus[]): Map<string, ClusterTelemetry> {
    const names = new Set(clusters.map(cluster => cluster.name));
    return new Map([...this._latest.telemetry].filter(([name]) => names.has(name)));
  }

  private _change(part: Partial<Known>): void {
    this._next = { ...this._latest, ...part };
    const due = this._drawnAt + 1000 / this.refreshPerSecond - Date.now();
    if (due <= 0) {
      this._flush();
    } else {
      this._timer ??= setTimeout(() => this._flush(), due);
    }
  }

  /** With what has not been drawn yet. */
  private get _latest(): Known {
    return this._next ?? this._known;
  }

  private _flush(): void {
    if (this._timer !== null) {
      clearTimeout(this._timer);
      this._timer = null;
    }
    if (this._next !== null) {
      this._known = this._next;
      this._next = null;
      this._drawnAt = Date.now();
      this._listeners.forEach(listener => listener());
    }
  }

  private _known: Known = NOTHING;
  private _next: Known | null = null;
  private _drawnAt = 0;
  private _timer: ReturnType<typeof setTimeout> | null = null;
  private readonly _listeners = new Set<() => void>();
  /** Those that somebody looks at. */
  private readonly _runs = new Map<
    string,
    { listeners: Set<RunListener>; newest: Map<string, RunNews> }
  >();
}

function offsetOf(at_s: number | null): number {
  return at_s === null ? 0 : at_s - Date.now() / 1000;
}
