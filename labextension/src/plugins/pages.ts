/** The pages of clusters and runs in the main area: one each, restored when the page is reloaded. */

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ReactWidget, ToolbarButton } from '@jupyterlab/ui-components';
import type { Widget } from '@lumino/widgets';
import * as React from 'react';

import { ddlIcon } from '../icons';
import type { PageContext } from '../pages/ClusterPage';
import { ClusterPage } from '../pages/ClusterPage';
import { ComparePage } from '../pages/ComparePage';
import { RunPage } from '../pages/RunPage';
import { LiveBanner } from '../parts/controls';
import { chooseRun } from './ask';

export class Pages {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _context: () => PageContext,
    private readonly _rendermime: IRenderMimeRegistry | null
  ) {}

  openRun(runId: string): void {
    const { store, actions } = this._context();
    const line = () => store.known.runs.find(run => run.run_id === runId);
    this._open(this._runs, `jupyter-ddl-run-${runId}`, () => ({
      content: new RunPage(this._context(), runId),
      // A restored page exists before the list of runs does.
      label: () => line()?.name || runId,
      buttons: [
        button('Insert code to attach', 'Follow this run in the last used notebook', () =>
          actions.attachRun(runId)
        ),
        button('Copy attach cell', 'Code that follows this run, for any notebook', () =>
          void actions.copyAttach(runId)
        ),
        button('Compare…', 'This run beside another one', () => void this.compareWith(runId)),
        button('Export', 'Download a recording, which `%runs replay` plays', () =>
          void actions.exportRun(runId, 'jsonl')
        ),
        button('Export page', 'Download a page of HTML that plays it', () =>
          void actions.exportRun(runId, 'html')
        ),
        button('TensorBoard…', 'Write event files, and tell what shows them', () =>
          void actions.openTensorboard(runId)
        ),
        button('Delete…', 'Remove the record, logs, checkpoints and values', () =>
          void actions.deleteRun(runId)
        ),
        button('Open its cluster', 'Workers, GPUs and logs', () => {
          const cluster = line()?.cluster;
          if (cluster) {
            actions.openCluster(cluster);
          }
        })
      ]
    }));
  }

  /** Ask for the other run. */
  async compareWith(runId: string): Promise<void> {
    const { store } = this._context();
    const others = store.known.runs.filter(run => run.run_id !== runId);
    const other = others.length === 0 ? null : await chooseRun(`Compare ${runId} with`, others);
    if (other !== null) {
      this.compareRuns(runId, [other]);
    }
  }

  compareRuns(runId: string, others: readonly string[]): void {
    const rendermime = this._rendermime;
    if (rendermime === null) {
      return;
    }
    const { store } = this._context();
    const named = (id: string) => store.known.runs.find(run => run.run_id === id)?.name || id;
    this._open(this._compared, `jupyter-ddl-compare-${[runId, ...others].join('-')}`, () => ({
      content: new ComparePage(this._context(), rendermime, runId, others),
      label: () => [runId, ...others].map(named).join(' · '),
      buttons: []
    }));
  }

  /** The run is gone, and so are its pages. */
  closeRun(runId: string): void {
    this._runs.find(page => page.content.runId === runId)?.dispose();
    this._compared
      .filter(page => [page.content.runId, ...page.content.others].includes(runId))
      .forEach(page => page.dispose());
  }

  openCluster(name: string): void {
    const { actions } = this._context();
    this._open(this._clusters, `jupyter-ddl-cluster-${name}`, () => ({
      content: new ClusterPage(this._context(), name),
      label: () => name,
      buttons: [
        button('Scale…', 'Change the number of workers', () => void actions.scaleCluster(name)),
        button('Stop…', 'End this cluster', () => void actions.stopCluster(name))
      ]
    }));
  }

  restore(
    restorer: ILayoutRestorer,
    openRun: string,
    openCluster: string,
    compareRun: string
  ): void {
    void restorer.restore(this._compared, {
      command: compareRun,
      args: ({ content: { runId, others } }) => ({ runId, others: [...others] }),
      name: ({ content: { runId, others } }) => [runId, ...others].join('-')
    });
    void restorer.restore(this._runs, {
      command: openRun,
      args: widget => ({ runId: widget.content.runId }),
      name: widget => widget.content.runId
    });
    void restorer.restore(this._clusters, {
      command: openCluster,
      args: widget => ({ name: widget.content.cluster }),
      name: widget => widget.content.cluster
    });
  }

  private _open<T extends Widget>(
    tracker: WidgetTracker<MainAreaWidget<T>>,
    id: string,
    make: () => { content: T; label: () => string; buttons: ToolbarButton[] }
  ): void {
    if (tracker.find(each => each.id === id) === undefined) {
      const { content, label, buttons } = make();
      const { store } = this._context();
      const page = new MainAreaWidget({ content });
      buttons.forEach((each, index) => page.toolbar.addItem(`ddl-${index}`, each));
      page.contentHeader.addWidget(ReactWidget.create(React.createElement(LiveBanner, { store })));
      page.id = id;
      page.title.icon = ddlIcon;
      page.title.closable = true;
      const name = () => (page.title.label = label());
      name();
      page.disposed.connect(store.subscribe(name));
      void tracker.add(page);
      this._app.shell.add(page, 'main');
    }
    this._app.shell.activateById(id);
  }

  private readonly _runs = new WidgetTracker<MainAreaWidget<RunPage>>({
    namespace: 'jupyter-ddl-runs'
  });
  private readonly _compared = new WidgetTracker<MainAreaWidget<ComparePage>>({
    namespace: 'jupyter-ddl-compared'
  });
  private readonly _clusters = new WidgetTracker<MainAreaWidget<ClusterPage>>({
    namespace: 'jupyter-ddl-clusters'
  });
}

function button(label: string, tooltip: string, onClick: () => void): ToolbarButton {
  return new ToolbarButton({ label, tooltip, onClick });
}
