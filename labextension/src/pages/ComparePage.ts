/** Runs side by side in the main area: what differs in parameters, code and packages. */

import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { MimeModel } from '@jupyterlab/rendermime';
import { PanelLayout, Widget } from '@lumino/widgets';

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
      (this.layout as PanelLayout).addWidget(drawn);
      this._said.hidden = true;
    } catch (error) {
      this._said.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  private readonly _said = document.createElement('div');
}
