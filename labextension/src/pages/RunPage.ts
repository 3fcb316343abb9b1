/** One run in the main area: the same live view as in the cell. */

import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

// Plain ES modules, the same that the view in the cell is made of.
import { mount } from '../../../jupyter_ddl/views/live/index.js';
import { RunChannel } from '../model/runChannel';
import type { PageContext } from './ClusterPage';

export class RunPage extends Widget {
  constructor(
    private readonly _context: PageContext,
    readonly runId: string
  ) {
    super();
    this.addClass('jp-ddl-page');
    this.addClass('jp-ddl-run-view');
  }

  override dispose(): void {
    this._leave();
    super.dispose();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    const { link, store, actions } = this._context;
    // A run that was deleted, or a record that can't be read: a sentence in place of an empty page.
    const refused = document.createElement('div');
    refused.className = 'jp-ddl-empty';
    refused.setAttribute('role', 'note');
    const channel = new RunChannel(link, store, this.runId, text => {
      refused.textContent = this._isShown ? '' : `This run can’t be shown: ${text}.`;
    });
    this.node.append(refused);
    const stopWaiting = channel.subscribe(() => {
      this._isShown = true;
      refused.remove();
    });
    const host = {
      scale: (name: string) => void actions.scaleCluster(name),
      saveTrace: (runId: string, file: string) => void actions.saveTrace(runId, file)
    };
    const view = mount(this.node, channel, { runId: this.runId, host });
    channel.setVisible(this.isVisible);
    this._channel = channel;
    this._leave = () => {
      this._leave = () => undefined;
      this._channel = null;
      stopWaiting();
      refused.remove();
      view.destroy();
      channel.dispose();
    };
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._channel?.setVisible(true);
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._channel?.setVisible(false);
  }

  protected override onBeforeDetach(message: Message): void {
    this._leave();
    super.onBeforeDetach(message);
  }

  private _isShown = false;
  private _channel: RunChannel | null = null;
  private _leave: () => void = () => undefined;
}
