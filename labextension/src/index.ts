/** Wires the panel, its pages, commands, settings and status item into JupyterLab. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';

import type { Actions } from './actions';
import { Store } from './model/store';
import { StatusItem } from './parts/StatusItem';
import { confirmSync } from './plugins/ask';
import { showInCells } from './plugins/cells';
import { addCommands, CommandIDs } from './plugins/commands';
import { connect, watchClusters } from './plugins/connect';
import { insertCode, runCode } from './plugins/insert';
import { Pages } from './plugins/pages';
import { DdlPanel } from './plugins/panel';
import { relayRequests } from './plugins/relay';
import { ServerActions, tell } from './plugins/serverActions';
import { followSettings, PANEL_PLACE } from './plugins/settings';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter_ddl:plugin',
  description: 'Clusters and runs of jupyter_ddl beside the notebook',
  autoStart: true,
  optional: [
    ISettingRegistry,
    ICommandPalette,
    ILayoutRestorer,
    INotebookTracker,
    IStatusBar,
    IRenderMimeRegistry,
    ILauncher
  ],
  activate
};

export default plugin;

function activate(
  app: JupyterFrontEnd,
  settings: ISettingRegistry | null,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  notebooks: INotebookTracker | null,
  statusBar: IStatusBar | null,
  rendermime: IRenderMimeRegistry | null,
  launcher: ILauncher | null
): void {
  const store = new Store();
  const link = connect(store);
  watchClusters(store, link);
  relayRequests(link);
  if (rendermime !== null) {
    showInCells(rendermime, notebooks, store, link, () => actions);
  }

  const server = new ServerActions(link, store);
  const pages = new Pages(app, () => ({ store, link, actions }), rendermime);
  const insert = (lines: string): void => {
    const notebook = insertCode(lines, notebooks);
    if (notebook !== null) {
      app.shell.activateById(notebook.id);
    }
  };
  const actions: Actions = {
    startCluster: server.startCluster,
    scaleCluster: server.scaleCluster,
    stopCluster: server.stopCluster,
    openCluster: name => pages.openCluster(name),
    openRun: runId => pages.openRun(runId),
    attachRun: runId => insert(`%runs attach ${runId}`),
    copyAttach: server.copyAttach,
    compareRuns: (runId, others) => pages.compareRuns(runId, others),
    exportRun: server.exportRun,
    saveTrace: server.saveTrace,
    openTensorboard: async runId => {
      const directory = await server.writeTensorboard(runId);
      if (directory !== null) {
        insert(`%load_ext tensorboard\n%tensorboard --logdir ${quoted(directory)}`);
      }
    },
    deleteRun: async runId => {
      if (await server.deleteRun(runId)) {
        pages.closeRun(runId);
      }
    },
    useCluster: server.useCluster,
    syncEnvironment: async name => {
      const title = notebooks?.currentWidget?.title.label;
      if (title === undefined) {
        tell('No notebook is open: what is to be synced is what a notebook uses.');
      } else if (await confirmSync(name, title)) {
        app.shell.activateById(await runCode(`%cluster env sync --name ${name}`, notebooks));
      }
    }
  };
  const panel = new DdlPanel(store, actions);
  // The layout that is restored would hide what was shown before it.
  const showPanel = () => void app.restored.then(() => app.shell.activateById(panel.id));
  app.shell.add(panel, 'left', PANEL_PLACE);
  restorer?.add(panel, panel.id);
  addCommands(app, palette, {
    store,
    actions,
    showPanel,
    openForm: () => {
      showPanel();
      panel.openForm();
    },
    stopRun: server.stopRun,
    compareWith: runId => pages.compareWith(runId)
  });
  launcher?.add({ command: CommandIDs.showPanel, category: 'Other', rank: 10 });
  if (restorer !== null) {
    pages.restore(
      restorer,
      CommandIDs.openRun,
      CommandIDs.openCluster,
      CommandIDs.compareRun
    );
  }
  if (settings !== null) {
    void followSettings(settings, plugin.id, app, panel, store);
  }
  statusBar?.registerStatusItem('jupyter-ddl:status', {
    item: new StatusItem(store, showPanel),
    align: 'left',
    rank: 20
  });
}

/** A path as a magic's line takes it. */
function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replace(/'/g, `'"'"'`)}'`;
}
