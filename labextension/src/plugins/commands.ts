/** Commands, in the palette and for other extensions. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';

import type { Actions } from '../actions';
import { activeRuns } from '../model/runs';
import type { Store } from '../model/store';
import { chooseCluster, chooseRun } from './ask';
import { tell } from './serverActions';

export const CommandIDs = {
  showPanel: 'jupyter-ddl:show-panel',
  startCluster: 'jupyter-ddl:start-cluster',
  scaleCluster: 'jupyter-ddl:scale-cluster',
  stopCluster: 'jupyter-ddl:stop-cluster',
  openCluster: 'jupyter-ddl:open-cluster',
  openRun: 'jupyter-ddl:open-run',
  stopRun: 'jupyter-ddl:stop-run',
  attachRun: 'jupyter-ddl:attach-run'
} as const;

const CATEGORY = 'Distributed cells';

export interface CommandContext {
  store: Store;
  actions: Actions;
  showPanel: () => void;
  openForm: () => void;
  stopRun: (runId: string) => Promise<void>;
}

export function addCommands(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  context: CommandContext
): void {
  const { store, actions } = context;
  const add = (
    id: string,
    label: string,
    execute: (args: Record<string, unknown>) => unknown
  ): void => {
    app.commands.addCommand(id, {
      label,
      caption: label.replace('…', ''),
      describedBy: { args: { type: 'object', properties: ARGUMENTS } },
      execute
    });
    palette?.addItem({ command: id, category: CATEGORY });
  };
  const withCluster =
    (title: string, act: (name: string) => unknown) => async (args: Record<string, unknown>) => {
      const { clusters } = store.known;
      const name = typeof args['name'] === 'string' ? args['name'] : null;
      const chosen = name ?? (await chooseCluster(title, clusters));
      if (chosen !== null) {
        await act(chosen);
      } else if (clusters.length === 0) {
        tell('No cluster is running.');
      }
    };
  const withRun =
    (title: string, act: (runId: string) => unknown, onlyActive = false) =>
    async (args: Record<string, unknown>) => {
      const runs = onlyActive ? activeRuns(store.known.runs) : store.known.runs;
      if (typeof args['runId'] === 'string') {
        await act(args['runId']);
      } else if (runs.length === 0) {
        tell(onlyActive ? 'No run is active.' : 'There are no runs yet.');
      } else {
        const chosen = await chooseRun(title, runs);
        await (chosen !== null && act(chosen));
      }
    };

  add(CommandIDs.showPanel, 'Show clusters and runs', context.showPanel);
  add(CommandIDs.startCluster, 'Start a cluster…', context.openForm);
  add(CommandIDs.scaleCluster, 'Scale a cluster…', withCluster('Scale', actions.scaleCluster));
  add(CommandIDs.stopCluster, 'Stop a cluster…', withCluster('Stop', actions.stopCluster));
  add(CommandIDs.openCluster, 'Open a cluster…', withCluster('Open', actions.openCluster));
  add(CommandIDs.openRun, 'Open a run…', withRun('Open a run', actions.openRun));
  add(CommandIDs.stopRun, 'Stop a run…', withRun('Stop a run', context.stopRun, true));
  add(
    CommandIDs.attachRun,
    'Insert code to attach a run…',
    withRun('Attach a run', actions.attachRun)
  );
}

const ARGUMENTS = {
  name: { type: 'string', description: 'Name of a cluster; asked for without it' },
  runId: { type: 'string', description: 'Id of a run; asked for without it' }
} as const;
