/** What buttons, menus and the palette can do; `plugins/` implements it. */

import type { StartAsk } from './model/clusterForm';

export interface Actions {
  /** Ends when the cluster is ready; rejects with one line. */
  startCluster: (ask: StartAsk, onProgress: (text: string) => void) => Promise<void>;
  openCluster: (name: string) => void;
  /** Asks for the number of workers. */
  scaleCluster: (name: string) => Promise<void>;
  /** Asks for confirmation. */
  stopCluster: (name: string) => Promise<void>;
  /** Let new notebooks use it, where several run. */
  useCluster: (name: string) => Promise<void>;
  /** Run `%cluster env sync` in the last used notebook, whose kernel knows what it uses. */
  syncEnvironment: (name: string) => Promise<void>;
  openRun: (runId: string) => void;
  compareRuns: (runId: string, others: readonly string[]) => void;
  /** Download a recording, or a page that plays it. */
  exportRun: (runId: string, form: 'jsonl' | 'html') => Promise<void>;
  /** Download the profiler's trace of a rank. */
  saveTrace: (runId: string, file: string) => Promise<void>;
  /** Write event files, and tell what shows them. */
  openTensorboard: (runId: string) => Promise<void>;
  /** Asks for confirmation. */
  deleteRun: (runId: string) => Promise<void>;
  /** Insert the code that follows a run into the current notebook. */
  attachRun: (runId: string) => void;
  copyAttach: (runId: string) => Promise<void>;
}
