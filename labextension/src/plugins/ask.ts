/** Small dialogs: which cluster, how many workers, confirmation. */

import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { counted } from '../format';
import { readCount } from '../model/clusterForm';
import { MAX_WORKERS } from '../protocol';
import type { ClusterStatus, RunLine } from '../protocol';

/** The name of a cluster that is chosen; the only one without asking, null when there is none. */
export async function chooseCluster(
  title: string,
  clusters: readonly ClusterStatus[]
): Promise<string | null> {
  if (clusters.length < 2) {
    return clusters[0]?.name ?? null;
  }
  const items = clusters.map(cluster => cluster.name);
  return choose(title, 'Cluster', items);
}

/** The id of a run that is chosen from the newest ones. */
export async function chooseRun(title: string, runs: readonly RunLine[]): Promise<string | null> {
  const labels = runs.map(run => `${run.name || run.verb} · ${run.state} · ${run.run_id}`);
  const value = await choose(title, 'Run', labels);
  return runs[labels.indexOf(value ?? '')]?.run_id ?? null;
}

/** Not `InputDialog.getItem`: its label does not name the list, which a screen reader then can't. */
async function choose(title: string, label: string, items: readonly string[]): Promise<string | null> {
  const { button, value } = await showDialog({
    title,
    body: new Choice(label, items),
    buttons: [Dialog.cancelButton(), Dialog.okButton()],
    focusNodeSelector: 'select'
  });
  return button.accept ? value : null;
}

class Choice extends Widget implements Dialog.IBodyWidget<string> {
  constructor(label: string, items: readonly string[]) {
    super();
    this._list.setAttribute('aria-label', label);
    this._list.append(...items.map(item => new Option(item, item)));
    this.node.append(this._list);
  }

  getValue(): string {
    return this._list.value;
  }

  private readonly _list = document.createElement('select');
}

/** Asks until it is a number or nothing. */
export async function chooseSize(cluster: ClusterStatus): Promise<number | null> {
  const { value } = await InputDialog.getText({
    title: `Scale cluster ${cluster.name}`,
    label: `Workers, from 0 to ${MAX_WORKERS} (now ${cluster.n_wanted})`,
    text: String(cluster.n_wanted),
    okLabel: 'Scale',
    pattern: '[0-9]{1,4}',
    required: true
  });
  if (value === null) {
    return null;
  }
  return readCount(value, 0, MAX_WORKERS) ?? chooseSize(cluster);
}

/** A link in a document can name the command: nobody's click on a link is a wish to stop. */
export async function confirmStopRun(runId: string): Promise<boolean> {
  const { button } = await showDialog({
    title: `Stop run ${runId}?`,
    body: 'It stops at its next report. What was finished is kept, and it can be resumed.',
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Stop' })],
    defaultButton: 0
  });
  return button.accept;
}

export async function confirmStop(cluster: ClusterStatus | undefined, name: string): Promise<boolean> {
  const kept = 'What was finished is kept, and an unfinished run can be resumed.';
  const n = cluster?.active_runs.length ?? 0;
  const { button } = await showDialog({
    title: `Stop cluster ${name}?`,
    body:
      cluster === undefined
        ? `Its controller does not answer; it and all its workers will be ended. ${kept}`
        : n
          ? `${counted(n, 'run')} on it will be stopped. ${kept}`
          : 'No run is active on it.',
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Stop' })],
    defaultButton: 0
  });
  return button.accept;
}

/** The default is to keep it: nothing brings it back. */
export async function confirmDelete(runId: string, name: string): Promise<boolean> {
  const { button } = await showDialog({
    title: `Delete run ${name || runId}?`,
    body: `The record of ${runId}, its logs, checkpoints and values are removed for good.`,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Delete' })],
    defaultButton: 0
  });
  return button.accept;
}

/** What shows event files; true: it is to be put into the notebook. */
export async function showTensorboard(directory: string): Promise<boolean> {
  const { button } = await showDialog({
    title: 'TensorBoard',
    body: `Event files are in ${directory}; \`tensorboard --logdir ${directory}\` shows them.`,
    buttons: [Dialog.cancelButton({ label: 'Close' }), Dialog.okButton({ label: 'Insert a cell' })]
  });
  return button.accept;
}

/** A link of a page can choose one as well, whoever has written it. */
export async function confirmUse(cluster: string): Promise<boolean> {
  const { button } = await showDialog({
    title: `Use cluster ${cluster} in new notebooks?`,
    body: 'Notebooks that have not chosen a cluster send their cells there, while it runs.',
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Use' })]
  });
  return button.accept;
}

/** Packages are installed on all workers of the cluster: asked for. */
export async function confirmSync(cluster: string, notebook: string): Promise<boolean> {
  const { button } = await showDialog({
    title: `Sync the environment of cluster ${cluster}?`,
    body:
      `A cell with %cluster env sync is added to ${notebook} and run: what this notebook uses ` +
      'and the workers lack is installed there.',
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Sync' })]
  });
  return button.accept;
}
