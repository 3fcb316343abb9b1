/** The pages of clusters and runs in the main area: one each, restored when the page is reloaded. */

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { Widget } from '@lumino/widgets';

import { ddlIcon } from '../icons';
import type { PageContext } from '../pages/ClusterPage';
import { ClusterPage } from '../pages/ClusterPage';
import { RunPage } from '../pages/RunPage';

export class Pages {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _context: () => PageContext
  ) {}

  openRun(runId: string): void {
    this._open(this._runs, `jupyter-ddl-run-${runId}`, () => {
      const { store } = this._context();
      const line = store.known.runs.find(run => run.run_id === runId);
      return { content: new RunPage(this._context(), runId), label: line?.name || runId };
    });
  }

  openCluster(name: string): void {
    this._open(this._clusters, `jupyter-ddl-cluster-${name}`, () => ({
      content: new ClusterPage(this._context(), name),
      label: name
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
    make: () => { content: T; label: string }
  ): void {
    let widget = tracker.find(each => each.id === id);
    if (widget === undefined) {
      const { content, label } = make();
      widget = new MainAreaWidget({ content });
      widget.id = id;
      widget.title.label = label;
      widget.title.icon = ddlIcon;
      widget.title.closable = true;
      widget.toolbar.hide();
      void tracker.add(widget);
      this._app.shell.add(widget, 'main');
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
