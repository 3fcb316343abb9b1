/** One run in the main area: the same live view as in the cell. */

import { ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Panel, Widget } from '@lumino/widgets';
import * as React from 'react';

import { RunChannel } from '../model/runChannel';
import { RunHeader } from '../parts/RunHeader';
import type { PageContext } from './ClusterPage';

export class RunPage extends Panel {
  constructor(
    private readonly _context: PageContext,
    readonly runId: string
  ) {
    super();
    this.addClass('jp-ddl-page');
    const { store, actions } = _context;
    this.addWidget(
      ReactWidget.create(React.createElement(RunHeader, { store, actions, runId }))
    );
    this._view.addClass('jp-ddl-run-view');
    this.addWidget(this._view);
  }

  override dispose(): void {
    this._leave();
    super.dispose();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    const { link, store } = this._context;
    const channel = new RunChannel(link, store, this.runId);
    const unmount = channel.subscribe(heard => {
      this._view.node.textContent = JSON.stringify(heard);
    });
    this._leave = () => {
      this._leave = () => undefined;
      unmount();
      channel.dispose();
    };
  }

  protected override onBeforeDetach(message: Message): void {
    this._leave();
    super.onBeforeDetach(message);
  }

  private _leave: () => void = () => undefined;
  private readonly _view = new Widget();
}
