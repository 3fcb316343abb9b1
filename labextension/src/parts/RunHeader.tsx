/** Above the live view of a run: where it is, and what can be done with it from here. */

import * as React from 'react';

import type { Actions } from '../actions';
import type { Store } from '../model/store';
import { ConnectionBanner } from './controls';
import { useKnown } from './hooks';

export function RunHeader(props: {
  store: Store;
  actions: Actions;
  runId: string;
}): React.ReactElement {
  const { store, actions, runId } = props;
  const known = useKnown(store);
  const cluster = known.runs.find(run => run.run_id === runId)?.cluster ?? '';
  const isRunning = known.clusters.some(each => each.name === cluster);
  return (
    <div className="jp-ddl-run-header">
      <ConnectionBanner known={known} />
      <div className="jp-ddl-row">
        <code>{runId}</code>
        {isRunning && (
          <button
            type="button"
            className="jp-ddl-link"
            title={`Open cluster ${cluster}`}
            onClick={() => actions.openCluster(cluster)}
          >
            on {cluster}
          </button>
        )}
        <span className="jp-ddl-buttons">
          <button
            type="button"
            className="jp-Button jp-mod-styled jp-mod-reject"
            title="Insert code that follows this run into the notebook that was used last"
            onClick={() => actions.attachRun(runId)}
          >
            Insert code to attach
          </button>
        </span>
      </div>
    </div>
  );
}
