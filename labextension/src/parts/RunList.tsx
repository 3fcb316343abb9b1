/** The runs of all kernels, newest first. */

import * as React from 'react';

import type { Actions } from '../actions';
import { age, counted, money, score } from '../format';
import { matchingRuns, progressOf, stateOf, ticked } from '../model/runs';
import type { Store } from '../model/store';
import type { RunLine } from '../protocol';
import { Bar, FilterField, StateLabel, Trouble } from './controls';
import { useKnown, useNow } from './hooks';

export function RunList(props: { store: Store; actions: Actions }): React.ReactElement {
  const known = useKnown(props.store);
  const [filter, setFilter] = React.useState('');
  const [chosen, setChosen] = React.useState<readonly string[]>([]);
  const shown = matchingRuns(known.runs, filter);
  const there = chosen.filter(each => known.runs.some(run => run.run_id === each));
  const [first, ...others] = there;
  const onTick = React.useCallback(
    (runId: string) => setChosen(before => ticked(before, runId)),
    []
  );
  const now_s = useNow() / 1000 + known.clockOffset_s;
  return (
    <div className="jp-ddl-section">
      <Trouble text={known.runsTrouble} />
      <FilterField
        placeholder="Filter runs"
        label="Filter runs by name, state, verb or cluster"
        value={filter}
        onChange={setFilter}
      />
      {first !== undefined && (
        <div className="jp-ddl-row jp-ddl-compare" role="group" aria-label="Compare runs">
          <span>
            {others.length === 0 ? 'Tick another run' : `${there.length} runs are ticked`}
          </span>
          <button
            type="button"
            className="jp-Button jp-mod-styled jp-mod-accept"
            disabled={others.length === 0}
            onClick={() => props.actions.compareRuns(first, others)}
          >
            Compare
          </button>
        </div>
      )}
      <ul className="jp-ddl-list" aria-label="Runs">
        {shown.map(run => (
          <RunRow
            key={run.run_id}
            run={run}
            now_s={Math.floor(now_s)}
            actions={props.actions}
            isTicked={there.includes(run.run_id)}
            onTick={onTick}
          />
        ))}
      </ul>
      {known.hasRuns && shown.length === 0 && known.runsTrouble === '' && (
        <div className="jp-ddl-empty">
          {known.runs.length === 0
            ? 'No runs yet. They appear here whichever kernel submits them.'
            : `None of ${counted(known.runs.length, 'run')} matches.`}
        </div>
      )}
    </div>
  );
}

const RunRow = React.memo(function RunRow(props: {
  run: RunLine;
  now_s: number;
  actions: Actions;
  isTicked: boolean;
  onTick: (runId: string) => void;
}): React.ReactElement {
  const { run, now_s } = props;
  const { share, text } = progressOf(run);
  const isOver = run.finished_at_s !== null;
  const age_s = now_s - (run.created_at_s ?? now_s);
  return (
    <li className="jp-ddl-run-line" data-run={run.run_id}>
      <input
        type="checkbox"
        aria-label={`Compare ${run.name || run.run_id}`}
        checked={props.isTicked}
        onChange={() => props.onTick(run.run_id)}
      />
      <button
        type="button"
        className="jp-ddl-card jp-ddl-run"
        data-run={run.run_id}
        title={
          run.is_damaged
            ? `The record of run ${run.run_id} is damaged: \`jupyter ddl runs repair ${run.run_id}\` keeps what stands before`
            : `Open run ${run.run_id}`
        }
        onClick={() => props.actions.openRun(run.run_id)}
      >
        <span className="jp-ddl-row">
          <span className="jp-ddl-name">{run.name || run.run_id}</span>
          <StateLabel state={stateOf(run)} />
        </span>
        {!isOver && <Bar share={share} label={`progress ${text}`} state={run.state} />}
        <span className="jp-ddl-fact">
          <span>{run.verb}</span>
          {text && <span>{text}</span>}
          {run.best !== null && (
            <span className="jp-ddl-best">
              {run.metric ?? 'best'} {score(run.best)}
            </span>
          )}
          {run.cost !== null && <span>{money(run.cost, run.currency)}</span>}
          <span>{age(age_s)}</span>
          <span>{run.cluster}</span>
        </span>
      </button>
    </li>
  );
});
