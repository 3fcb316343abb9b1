/** Runs side by side in the main area: their curves, and what differs in parameters, code and packages. */

import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { MimeModel } from '@jupyterlab/rendermime';
import { PanelLayout, Widget } from '@lumino/widgets';

// A plain ES module, of those that the view in the cell is made of.
import { mountCompared } from '../../../jupyter_ddl/views/live/compare.js';
import type { Ask } from '../model/requests';
import { answerOf } from '../model/runChannel';
import type { PageContext } from './ClusterPage';

const HTML = 'text/html';

export class ComparePage extends Widget {
  constructor(
    private readonly _context: PageContext,
    private readonly _rendermime: IRenderMimeRegistry,
    readonly runId: string,
    readonly others: readonly string[]
  ) {
    super();
    this.addClass('jp-ddl-page');
    this.addClass('jp-ddl-compared');
    this.layout = new PanelLayout();
    this._said.className = 'jp-ddl-empty';
    this._said.setAttribute('role', 'status');
    (this.layout as PanelLayout).addWidget(new Widget({ node: this._said }));
    void this._ask();
  }

  /** What comes is a picture of two records: it is drawn as an output that nobody trusts. */
  private async _ask(): Promise<void> {
    this._said.textContent = 'Comparing…';
    try {
      const answer = await this._context.link.ask({
        kind: 'compare_runs',
        run_id: this.runId,
        others: [...this.others]
      });
      if (answer.kind !== 'compared' || this.isDisposed) {
        return;
      }
      const drawn = this._rendermime.createRenderer(HTML);
      await drawn.renderModel(new MimeModel({ data: { [HTML]: answer.html }, trusted: false }));
      this._said.hidden = true;
      this._showCurves();
      (this.layout as PanelLayout).addWidget(drawn);
    } catch (error) {
      this._said.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  private _showCurves(): void {
    const { link, store } = this._context;
    const place = new Widget();
    (this.layout as PanelLayout).addWidget(place);
    const nameOf = (id: string) => store.known.runs.find(run => run.run_id === id)?.name || id;
    const runs = [this.runId, ...this.others].map(id => ({ id, name: () => nameOf(id) }));
    const curves = mountCompared(place.node, ask => answerOf(link, ask as Ask), runs);
    this.disposed.connect(() => curves.destroy());
  }

  private readonly _said = document.createElement('div');
}
