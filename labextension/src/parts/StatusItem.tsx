/** In the status bar: active runs and busy GPUs. */

import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { counted } from '../format';
import { activeRuns } from '../model/runs';
import type { Known, Store } from '../model/store';
import { gpuSummary } from '../model/workers';
import { ddlIcon } from '../icons';
import { useKnown } from './hooks';

export class StatusItem extends ReactWidget {
  constructor(
    private readonly _store: Store,
    private readonly _onClick: () => void
  ) {
    super();
    this.addClass('jp-ddl-status');
  }

  protected render(): React.ReactElement {
    return React.createElement(StatusText, { store: this._store, onClick: this._onClick });
  }
}

function StatusText(props: { store: Store; onClick: () => void }): React.ReactElement {
  const known = useKnown(props.store);
  const { text, tip } = statusOf(known);
  return (
    <button type="button" className="jp-ddl-status-button" title={tip} onClick={props.onClick}>
      <ddlIcon.react tag="span" aria-hidden="true" />
      <span>{text}</span>
    </button>
  );
}

function statusOf(known: Known): { text: string; tip: string } {
  if (known.state !== 'connected') {
    return { text: `${known.state}…`, tip: 'Clusters and runs: no connection to the server' };
  }
  const nRuns = activeRuns(known.runs).length;
  const all = [...known.telemetry.values()].map(gpuSummary);
  const nGpus = all.reduce((sum, each) => sum + each.nGpus, 0);
  const nBusy = all.reduce((sum, each) => sum + each.nBusy, 0);
  const parts = [counted(nRuns, 'run')];
  if (nGpus > 0) {
    parts.push(`${nBusy}/${nGpus} GPUs`);
  }
  const clusters = counted(known.clusters.length, 'cluster');
  return { text: parts.join(' · '), tip: `${parts.join(' active, ')} on ${clusters}: show them` };
}
