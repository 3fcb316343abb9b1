/** Requests to the server; its refusals are shown. */

import { Notification } from '@jupyterlab/apputils';

import type { Link } from '../model/link';
import type { Ask } from '../model/requests';
import type { Store } from '../model/store';
import { chooseSize, confirmStop, confirmStopRun } from './ask';

/** Workers may have to be installed, or to start far away. */
const START_TIMEOUT_S = 180;
const STOP_TIMEOUT_S = 60;

export class ServerActions {
  constructor(
    private readonly _link: Link,
    private readonly _store: Store
  ) {}

  readonly startCluster = async (
    ask: Extract<Ask, { kind: 'start_cluster' }>,
    onProgress: (text: string) => void
  ): Promise<void> => {
    await this._link.ask(ask, { timeout_s: START_TIMEOUT_S, onProgress });
  };

  readonly scaleCluster = async (name: string): Promise<void> => {
    const cluster = this._store.known.clusters.find(each => each.name === name);
    if (cluster === undefined) {
      tell(`There is no cluster named ${name}.`);
      return;
    }
    const n_workers = await chooseSize(cluster);
    if (n_workers !== null) {
      await this._do({ kind: 'scale_cluster', cluster: name, n_workers });
    }
  };

  readonly stopCluster = async (name: string): Promise<void> => {
    const cluster = this._store.known.clusters.find(each => each.name === name);
    if (await confirmStop(cluster, name)) {
      await this._do({ kind: 'stop_cluster', cluster: name });
    }
  };

  readonly stopRun = async (run_id: string): Promise<void> => {
    if (await confirmStopRun(run_id)) {
      await this._do({ kind: 'stop_run', run_id, how: 'next_report' });
    }
  };

  private async _do(ask: Ask): Promise<void> {
    try {
      await this._link.ask(ask, { timeout_s: STOP_TIMEOUT_S });
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error));
    }
  }
}

export function tell(text: string): void {
  Notification.warning(text, { autoClose: 8000 });
}
