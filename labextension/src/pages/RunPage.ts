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
    const { link, store } = this._context;
    const channel = new RunChannel(link, store, this.runId);
    const view = mount(this.node, channel, { runId: this.runId });
    channel.setVisible(this.isVisible);
    this._channel = channel;
    this._leave = () => {
      this._leave = () => undefined;
      this._channel = null;
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

  private _channel: RunChannel | null = null;
  private _leave: () => void = () => undefined;
}
