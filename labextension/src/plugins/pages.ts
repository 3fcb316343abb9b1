/** The pages of clusters and runs in the main area: one each, restored when the page is reloaded. */

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ReactWidget, ToolbarButton } from '@jupyterlab/ui-components';
import type { Widget } from '@lumino/widgets';
import * as React from 'react';

import { ddlIcon } from '../icons';
import type { PageContext } from '../pages/ClusterPage';
import { ClusterPage } from '../pages/ClusterPage';
import { RunPage } from '../pages/RunPage';
import { LiveBanner } from '../parts/controls';

export class Pages {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _context: () => PageContext
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
        button('Open its cluster', 'Workers, GPUs and logs', () => {
          const cluster = line()?.cluster;
          if (cluster) {
            actions.openCluster(cluster);
          }
        })
      ]
    }));
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

  restore(restorer: ILayoutRestorer, openRun: string, openCluster: string): void {
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
  private readonly _clusters = new WidgetTracker<MainAreaWidget<ClusterPage>>({
    namespace: 'jupyter-ddl-clusters'
  });
}

function button(label: string, tooltip: string, onClick: () => void): ToolbarButton {
  return new ToolbarButton({ label, tooltip, onClick });
}
