/** Every cluster of this user, whoever started it. */

import { closeIcon, editIcon, textEditorIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Actions } from '../actions';
import { bytes, counted, clock, percent } from '../format';
import type { Store } from '../model/store';
import { gpuSummary } from '../model/workers';
import type { ClusterStatus, ClusterTelemetry } from '../protocol';
import { ClusterFormView } from './ClusterFormView';
import { Bar, IconButton, StateLabel, Trouble } from './controls';
import { useKnown, useNow } from './hooks';

export function ClusterList(props: {
  store: Store;
  actions: Actions;
  hasForm: boolean;
  onForm: (isOpen: boolean) => void;
}): React.ReactElement {
  const { actions, hasForm, onForm } = props;
  const known = useKnown(props.store);
  const taken = [
    ...known.clusters.map(cluster => cluster.name),
    ...known.unreachable,
    ...known.elsewhere.map(cluster => cluster.name).filter(Boolean)
  ];
  return (
    <div className="jp-ddl-section">
      {hasForm && (
        <ClusterFormView
          taken={taken}
          backends={known.backends}
          onStart={actions.startCluster}
          onClose={() => onForm(false)}
        />
      )}
      <Trouble text={known.clustersTrouble} />
      <ul className="jp-ddl-list" aria-label="Clusters">
        {known.clusters.map(cluster => (
          <ClusterCard
            key={cluster.name}
            cluster={cluster}
            telemetry={known.telemetry.get(cluster.name)}
            since_ms={known.clustersAt_ms}
            isChosen={known.chosen === cluster.name}
            hasOthers={known.clusters.length > 1}
            actions={actions}
          />
        ))}
        {known.unreachable.map(name => (
          <li className="jp-ddl-card" key={name} data-cluster={name}>
            <div className="jp-ddl-row">
              <span className="jp-ddl-name">{name}</span>
              <StateLabel state="unreachable" />
              <span className="jp-ddl-buttons">
                <StopButton name={name} actions={actions} />
              </span>
            </div>
            <div className="jp-ddl-fact">Its controller does not answer.</div>
          </li>
        ))}
        {known.elsewhere.map(each => (
          <li className="jp-ddl-card" key={`elsewhere ${each.name} ${each.text}`}>
            {each.name && (
              <div className="jp-ddl-row">
                <span className="jp-ddl-name">{each.name}</span>
                <span className="jp-ddl-fact">{each.place}</span>
              </div>
            )}
            <div className="jp-ddl-fact">{each.text}</div>
          </li>
        ))}
      </ul>
      {known.hasClusters && taken.length === 0 && !known.clustersTrouble && !hasForm && (
        <div className="jp-ddl-empty">
          No cluster is running. A <code>%%distribute</code> cell starts one, and so does{' '}
          <button type="button" className="jp-ddl-link" onClick={() => onForm(true)}>
            Start a cluster
          </button>
          .
        </div>
      )}
    </div>
  );
}

function ClusterCard(props: {
  cluster: ClusterStatus;
  telemetry: ClusterTelemetry | undefined;
  since_ms: number;
  isChosen: boolean;
  hasOthers: boolean;
  actions: Actions;
}): React.ReactElement {
  const { cluster, telemetry, actions } = props;
  const { name } = cluster;
  const nBusy = cluster.workers.reduce((sum, worker) => sum + worker.n_busy, 0);
  const nSlots = cluster.workers.reduce((sum, worker) => sum + worker.n_slots, 0);
  return (
    <li className="jp-ddl-card" data-cluster={name}>
      <div className="jp-ddl-row">
        <button
          type="button"
          className="jp-ddl-name jp-ddl-link"
          title={`Open cluster ${name}: workers, GPUs, logs`}
          onClick={() => actions.openCluster(name)}
        >
          {name}
        </button>
        <StateLabel state={cluster.state} />
        <span className="jp-ddl-buttons">
          <IconButton
            icon={textEditorIcon}
            label={`Logs of cluster ${name}`}
            onClick={() => actions.openCluster(name)}
          />
          <IconButton
            icon={editIcon}
            label={`Scale cluster ${name}`}
            onClick={() => void actions.scaleCluster(name)}
          />
          <StopButton name={name} actions={actions} />
        </span>
      </div>
      <div className="jp-ddl-fact">
        {workersText(cluster)}, {counted(cluster.cpus_per_worker, 'CPU')}
        {cluster.memory_per_worker_bytes !== null &&
          `, ${bytes(cluster.memory_per_worker_bytes)}`}{' '}
        each
      </div>
      <div className="jp-ddl-measure">
        <span>
          {nBusy}/{nSlots} slots
        </span>
        <Bar share={nSlots ? nBusy / nSlots : 0} label={`${nBusy} of ${nSlots} slots busy`} />
      </div>
      <GpuLine telemetry={telemetry} fallback={cluster.gpus} />
      {cluster.trouble && <div className="jp-ddl-fact">{cluster.trouble}</div>}
      <Verdict cluster={cluster} actions={actions} />
      {props.hasOthers && <Choice name={name} isChosen={props.isChosen} actions={actions} />}
      <Lease cluster={cluster} since_ms={props.since_ms} />
    </li>
  );
}

function StopButton(props: { name: string; actions: Actions }): React.ReactElement {
  return (
    <IconButton
      icon={closeIcon}
      label={`Stop cluster ${props.name}`}
      onClick={() => void props.actions.stopCluster(props.name)}
    />
  );
}

function workersText(cluster: ClusterStatus): string {
  const n = cluster.workers.length;
  return n === cluster.n_wanted
    ? counted(n, 'worker')
    : `${n} of ${counted(cluster.n_wanted, 'worker')}`;
}

/** `fallback` says in words what there is, before the first measurement. */
function GpuLine(props: {
  telemetry: ClusterTelemetry | undefined;
  fallback: string;
}): React.ReactElement | null {
  const { nGpus, nBusy, mean, state } = gpuSummary(props.telemetry);
  if (nGpus === 0) {
    const text = state ? `GPU ${state}` : props.fallback;
    return text ? <div className="jp-ddl-fact">{text}</div> : null;
  }
  return (
    <div className="jp-ddl-measure">
      <span>
        {nBusy}/{nGpus} GPUs
      </span>
      <Bar share={mean} label={`GPU utilization ${percent(mean)}`} />
      <span>{percent(mean)}</span>
    </div>
  );
}

/** How the workers' environment compares with the kernel's. */
function Verdict(props: { cluster: ClusterStatus; actions: Actions }): React.ReactElement | null {
  const { environment, name } = props.cluster;
  return environment === null ? null : (
    <div className="jp-ddl-fact" title={`${environment.text} ${environment.fix}`.trim()}>
      environment <StateLabel state={environment.word} />
      {environment.word !== 'same' && (
        <button
          type="button"
          className="jp-ddl-link"
          onClick={() => void props.actions.syncEnvironment(name)}
        >
          Sync environment…
        </button>
      )}
    </div>
  );
}

/** Which of several clusters a notebook takes that has not chosen one. */
function Choice(props: { name: string; isChosen: boolean; actions: Actions }): React.ReactElement {
  return (
    <div className="jp-ddl-fact">
      {props.isChosen ? (
        <span>used by new notebooks</span>
      ) : (
        <button
          type="button"
          className="jp-ddl-link"
          onClick={() => void props.actions.useCluster(props.name)}
        >
          Use in new notebooks
        </button>
      )}
    </div>
  );
}

function Lease(props: { cluster: ClusterStatus; since_ms: number }): React.ReactElement {
  const now = useNow();
  const { idle_left_s, age_left_s } = props.cluster;
  const passed_s = (now - props.since_ms) / 1000;
  const left = (seconds: number) => clock(seconds - passed_s);
  const isSoon = idle_left_s !== null && idle_left_s - passed_s < 300;
  return (
    <div className="jp-ddl-fact jp-ddl-lease" data-soon={isSoon || undefined}>
      {idle_left_s !== null && <span>ends in {left(idle_left_s)} if it stays idle</span>}
      {age_left_s !== null && <span>at the latest in {left(age_left_s)}</span>}
    </div>
  );
}
