/** Commands, in the palette and for other extensions. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';

import type { Actions } from '../actions';
import { activeRuns } from '../model/runs';
import type { Store } from '../model/store';
import { ddlIcon } from '../icons';
import { chooseCluster, chooseRun, confirmUse } from './ask';
import { tell } from './serverActions';

export const CommandIDs = {
  showPanel: 'jupyter-ddl:show-panel',
  startCluster: 'jupyter-ddl:start-cluster',
  scaleCluster: 'jupyter-ddl:scale-cluster',
  stopCluster: 'jupyter-ddl:stop-cluster',
  openCluster: 'jupyter-ddl:open-cluster',
  openRun: 'jupyter-ddl:open-run',
  stopRun: 'jupyter-ddl:stop-run',
  attachRun: 'jupyter-ddl:attach-run',
  copyAttach: 'jupyter-ddl:copy-attach',
  compareRun: 'jupyter-ddl:compare-run',
  exportRun: 'jupyter-ddl:export-run',
  exportPage: 'jupyter-ddl:export-page',
  tensorboard: 'jupyter-ddl:tensorboard',
  deleteRun: 'jupyter-ddl:delete-run',
  useCluster: 'jupyter-ddl:use-cluster'
} as const;

const CATEGORY = 'Distributed cells';
/** Of a cluster, or a run's id: arguments may come from a link in anybody's text. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9-]{0,79}$/;
/** Tells a command that the pointer is on what it is about. */
const IN_MENU = 'isInMenu';

export interface CommandContext {
  store: Store;
  actions: Actions;
  showPanel: () => void;
  openForm: () => void;
  stopRun: (runId: string) => Promise<void>;
  compareWith: (runId: string) => Promise<void>;
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
      label: args => (args[IN_MENU] === true ? (MENU_LABELS[id] ?? label) : label),
      caption: label.replace('…', ''),
      ...(id === CommandIDs.showPanel ? { icon: ddlIcon } : {}),
      describedBy: { args: { type: 'object', properties: ARGUMENTS } },
      execute
    });
    palette?.addItem({ command: id, category: CATEGORY });
  };
  /** What was given, or what stands below the pointer of a menu. */
  const given = (args: Record<string, unknown>, name: string, mark: string): string | null => {
    if (typeof args[name] === 'string' && NAME.test(args[name])) {
      return args[name];
    }
    const node =
      args[IN_MENU] === true
        ? app.contextMenuHitTest(each => each.dataset[mark] !== undefined)
        : undefined;
    return node?.dataset[mark] ?? null;
  };
  const addMenus = (): void => {
    const menus = { '.jp-ddl-run-line': RUN_MENU, '.jp-ddl-card[data-cluster]': CLUSTER_MENU };
    for (const [selector, commands] of Object.entries(menus)) {
      commands.forEach((command, rank) =>
        app.contextMenu.addItem({ command, selector, rank, args: { [IN_MENU]: true } })
      );
    }
  };
  const withCluster =
    (title: string, act: (name: string) => unknown) => async (args: Record<string, unknown>) => {
      const { clusters } = store.known;
      const name = given(args, 'name', 'cluster');
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
      const runId = given(args, 'runId', 'run');
      if (runId !== null) {
        await act(runId);
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
  // Always asked: a link can name one, or leave it to be the only one there is.
  add(
    CommandIDs.useCluster,
    'Use a cluster in new notebooks…',
    withCluster('Use', async name => {
      if (await confirmUse(name)) {
        await actions.useCluster(name);
      }
    })
  );
  const askForOther = withRun('Compare', context.compareWith);
  add(CommandIDs.compareRun, 'Compare a run…', args =>
    typeof args.runId === 'string' &&
    Array.isArray(args.others) &&
    [args.runId, ...args.others].every(each => typeof each === 'string' && NAME.test(each))
      ? actions.compareRuns(args.runId, args.others.map(String))
      : askForOther(args)
  );
  add(
    CommandIDs.exportRun,
    'Export a run…',
    withRun('Export', runId => actions.exportRun(runId, 'jsonl'))
  );
  add(
    CommandIDs.exportPage,
    'Export a run as a page…',
    withRun('Export', runId => actions.exportRun(runId, 'html'))
  );
  add(
    CommandIDs.tensorboard,
    'Show a run in TensorBoard…',
    withRun('TensorBoard', actions.openTensorboard)
  );
  add(CommandIDs.deleteRun, 'Delete a run…', withRun('Delete', actions.deleteRun));
  add(CommandIDs.copyAttach, 'Copy the cell that attaches a run…', withRun('Copy', actions.copyAttach));
  addMenus();
  add(
    CommandIDs.attachRun,
    'Insert code to attach a run…',
    withRun('Attach a run', actions.attachRun)
  );
}

/** Where the pointer has said which one is meant; with dots where there is still something to say. */
const MENU_LABELS: Readonly<Record<string, string>> = {
  [CommandIDs.openRun]: 'Open',
  [CommandIDs.compareRun]: 'Compare with…',
  [CommandIDs.attachRun]: 'Insert code to attach',
  [CommandIDs.copyAttach]: 'Copy attach cell',
  [CommandIDs.exportRun]: 'Export',
  [CommandIDs.exportPage]: 'Export page',
  [CommandIDs.tensorboard]: 'TensorBoard…',
  [CommandIDs.stopRun]: 'Stop…',
  [CommandIDs.deleteRun]: 'Delete…',
  [CommandIDs.openCluster]: 'Open',
  [CommandIDs.useCluster]: 'Use in new notebooks…',
  [CommandIDs.scaleCluster]: 'Scale…',
  [CommandIDs.stopCluster]: 'Stop…'
};

/** Below the right button: of runs, of clusters. */
const RUN_MENU = [
  CommandIDs.openRun,
  CommandIDs.compareRun,
  CommandIDs.attachRun,
  CommandIDs.copyAttach,
  CommandIDs.exportRun,
  CommandIDs.exportPage,
  CommandIDs.tensorboard,
  CommandIDs.stopRun,
  CommandIDs.deleteRun
];
const CLUSTER_MENU = [
  CommandIDs.openCluster,
  CommandIDs.useCluster,
  CommandIDs.scaleCluster,
  CommandIDs.stopCluster
];

const ARGUMENTS = {
  name: { type: 'string', description: 'Name of a cluster; asked for without it' },
  runId: { type: 'string', description: 'Id of a run; asked for without it' },
  others: {
    type: 'array',
    items: { type: 'string' },
    description: 'Ids of the runs to compare with; asked for without them'
  }
} as const;
