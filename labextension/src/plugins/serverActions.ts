/** Requests to the server; its refusals are shown. */

import { Clipboard, Notification } from '@jupyterlab/apputils';
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { Link } from '../model/link';
import type { Answer, Ask } from '../model/requests';
import { attachCode } from '../model/runs';
import type { Store } from '../model/store';
import { chooseSize, confirmDelete, confirmStop, confirmStopRun, showTensorboard } from './ask';

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

  readonly useCluster = async (cluster: string): Promise<void> => {
    if ((await this._do({ kind: 'use_cluster', cluster })) !== null) {
      Notification.info(
        `Cluster ${cluster} is used by notebooks that have not chosen one, while it runs.`,
        { autoClose: 5000 }
      );
    }
  };

  /** True: it is gone. */
  readonly deleteRun = async (run_id: string): Promise<boolean> => {
    const line = this._store.known.runs.find(run => run.run_id === run_id);
    if (!(await confirmDelete(run_id, line?.name ?? ''))) {
      return false;
    }
    const answer = await this._do({ kind: 'delete_run', run_id });
    return answer !== null;
  };

  readonly exportRun = (runId: string, form: 'jsonl' | 'html'): Promise<void> =>
    download(runId, `export?form=${form}`, `${runId}.${form}`);

  readonly saveTrace = (runId: string, file: string): Promise<void> =>
    download(runId, `profiles/${encodeURIComponent(file)}`, `${runId}-${file}`);

  readonly writeTensorboard = async (run_id: string): Promise<string | null> => {
    const answer = await this._do({ kind: 'tensorboard', run_id });
    if (answer?.kind !== 'done') {
      return null;
    }
    return (await showTensorboard(answer.text)) ? answer.text : null;
  };

  readonly copyAttach = async (runId: string): Promise<void> => {
    Clipboard.copyToSystem(attachCode(runId, []));
    Notification.info('Copied: paste it into a cell of any notebook.', { autoClose: 3000 });
    await Promise.resolve();
  };

  private async _do(ask: Ask): Promise<Answer | null> {
    try {
      return await this._link.ask(ask, { timeout_s: STOP_TIMEOUT_S });
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error));
      return null;
    }
  }
}

export function tell(text: string): void {
  Notification.warning(text, { autoClose: 8000 });
}

/** Of what the server has of a run. */
async function download(runId: string, what: string, name: string): Promise<void> {
  const settings = ServerConnection.makeSettings();
  const path = ['jupyter-ddl', 'api', 'runs', encodeURIComponent(runId)];
  const url = `${URLExt.join(settings.baseUrl, ...path)}/${what}`;
  try {
    const answer = await ServerConnection.makeRequest(url, {}, settings);
    if (!answer.ok) {
      tell(((await answer.json()) as { message?: string }).message ?? answer.statusText);
      return;
    }
    save(await answer.blob(), name);
  } catch (error) {
    tell(error instanceof Error ? error.message : String(error));
  }
}

function save(content: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // Not at once: the browser reads it when it has asked where to.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
