/** One cluster in the main area: its workers as a heat map, its verdicts, its log. */

import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Actions } from '../actions';
import { counted } from '../format';
import type { Link } from '../model/link';
import type { Store } from '../model/store';
import { heatCells, MEASURES } from '../model/heat';
import type { Measure } from '../model/heat';
import { workerLines } from '../model/workers';
import type { ClusterStatus } from '../protocol';
import { ClusterLog } from '../parts/ClusterLog';
import { StateLabel } from '../parts/controls';
import { HeatMap } from '../parts/HeatMap';
import { useKnown } from '../parts/hooks';

export interface PageContext {
  store: Store;
  link: Link;
  actions: Actions;
}

export class ClusterPage extends ReactWidget {
  constructor(
    private readonly _context: PageContext,
    readonly cluster: string
  ) {
    super();
    this.addClass('jp-ddl-page');
  }

  protected render(): React.ReactElement {
    return <ClusterView {...this._context} cluster={this.cluster} isVisible={this._isInSight} />;
  }

  private readonly _isInSight = () => this.isVisible && !document.hidden;
}

function ClusterView(
  props: PageContext & { cluster: string; isVisible: () => boolean }
): React.ReactElement {
  const { store, link, actions } = props;
  const name = props.cluster;
  const known = useKnown(store);
  const [worker, setWorker] = React.useState<string | null>(null);
  const cluster = known.clusters.find(each => each.name === name);
  const telemetry = known.telemetry.get(name);
  const workers = React.useMemo(() => workerLines(cluster, telemetry), [cluster, telemetry]);
  React.useEffect(() => link.watch('cluster', name), [link, name]);
  return (
    <div className="jp-ddl-page-body">
      <div className="jp-ddl-row">
        <h2>{name}</h2>
        <StateLabel state={cluster?.state ?? (known.hasClusters ? 'ended' : 'connecting')} />
      </div>
      {cluster !== undefined && <Facts cluster={cluster} actions={actions} />}
      {telemetry?.verdicts.map(verdict => (
        <div className="jp-ddl-verdict" role="status" key={verdict}>
          {verdict}
        </div>
      ))}
      <WorkerHeat workers={workers} onWorker={setWorker} />
      <ClusterLog
        link={link}
        cluster={name}
        worker={worker}
        onAllWorkers={() => setWorker(null)}
        isVisible={props.isVisible}
      />
    </div>
  );
}

function Facts(props: { cluster: ClusterStatus; actions: Actions }): React.ReactElement {
  const { cluster, actions } = props;
  return (
    <div className="jp-ddl-fact">
      <span>{cluster.backend}</span>
      <span>{counted(cluster.workers.length, 'worker')}</span>
      <span>
        controller {cluster.controller_pid}
        {cluster.controller_host && ` on ${cluster.controller_host}`}
      </span>
      {cluster.active_runs.map(runId => (
        <button
          type="button"
          className="jp-ddl-link"
          key={runId}
          onClick={() => actions.openRun(runId)}
        >
          {runId}
        </button>
      ))}
    </div>
  );
}

function WorkerHeat(props: {
  workers: ReturnType<typeof workerLines>;
  onWorker: (name: string) => void;
}): React.ReactElement {
  const [measure, setMeasure] = React.useState<Measure>('cpu');
  const cells = React.useMemo(() => heatCells(props.workers, measure), [props.workers, measure]);
  const label = MEASURES.find(each => each.measure === measure)?.label ?? '';
  return (
    <section aria-label="Heat map of the workers">
      <div className="jp-ddl-row">
        <h3>Workers</h3>
        <div role="radiogroup" aria-label="What the colour means" className="jp-ddl-choice">
          {MEASURES.map(each => (
            <button
              type="button"
              role="radio"
              aria-checked={each.measure === measure}
              key={each.measure}
              onClick={() => setMeasure(each.measure)}
            >
              {each.label}
            </button>
          ))}
        </div>
      </div>
      {cells.length === 0 ? (
        <div className="jp-ddl-empty">
          {props.workers.length === 0 ? 'No worker yet.' : noGpuText(props.workers)}
        </div>
      ) : (
        <HeatMap cells={cells} label={label} onPick={cell => props.onWorker(cell.worker.name)} />
      )}
    </section>
  );
}

/** Why there is no cell for a GPU. */
function noGpuText(workers: ReturnType<typeof workerLines>): string {
  const state = workers.map(worker => worker.sample?.gpu_state ?? '').find(Boolean);
  return state ? `GPU ${state}` : 'No worker has a GPU.';
}
