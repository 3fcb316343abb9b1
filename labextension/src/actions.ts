/** What buttons, menus and the palette can do; `plugins/` makes them real. */

import type { StartAsk } from './model/clusterForm';

export interface Actions {
  /** Ends when the cluster is there; rejects with one line. */
  startCluster: (ask: StartAsk, onProgress: (text: string) => void) => Promise<void>;
  openCluster: (name: string) => void;
  /** Asks how many workers there shall be. */
  scaleCluster: (name: string) => Promise<void>;
  /** Asks whether it is meant. */
  stopCluster: (name: string) => Promise<void>;
  openRun: (runId: string) => void;
  /** Insert the code that follows a run into the notebook in front. */
  attachRun: (runId: string) => void;
}
