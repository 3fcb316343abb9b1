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
  openRun: (runId: string) => void;
  /** Insert the code that follows a run into the current notebook. */
  attachRun: (runId: string) => void;
}
