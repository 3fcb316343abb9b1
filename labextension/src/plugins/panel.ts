/** The side panel: clusters above, runs below. */

import {
  addIcon,
  PanelWithToolbar,
  ReactWidget,
  SidePanel,
  ToolbarButton
} from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import type { Actions } from '../actions';
import { ddlIcon } from '../icons';
import type { Store } from '../model/store';
import { ClusterList } from '../parts/ClusterList';
import { LiveBanner } from '../parts/controls';
import { RunList } from '../parts/RunList';

export class DdlPanel extends SidePanel {
  constructor(store: Store, actions: Actions) {
    super();
    this.id = 'jupyter-ddl-panel';
    this.addClass('jp-ddl-panel');
    this.title.icon = ddlIcon;
    this.title.caption = 'Clusters and runs';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Clusters and runs');
    this.header.addWidget(ReactWidget.create(React.createElement(LiveBanner, { store })));
    this._clusters = new ClusterSection(store, actions);
    this.addWidget(
      section('Clusters', this._clusters, [
        new ToolbarButton({
          icon: addIcon,
          tooltip: 'Start a cluster',
          className: 'jp-ddl-start',
          onClick: () => this.openForm()
        })
      ])
    );
    const runs = ReactWidget.create(React.createElement(RunList, { store, actions }));
    this.addWidget(section('Runs', runs, []));
  }

  /** Show the form that starts a cluster. */
  openForm(): void {
    this._clusters.openForm();
  }

  private readonly _clusters: ClusterSection;
}

class ClusterSection extends ReactWidget {
  constructor(
    private readonly _store: Store,
    private readonly _actions: Actions
  ) {
    super();
  }

  openForm(): void {
    this._setForm(true);
  }

  protected render(): React.ReactElement {
    return React.createElement(ClusterList, {
      store: this._store,
      actions: this._actions,
      hasForm: this._hasForm,
      onForm: this._setForm
    });
  }

  private readonly _setForm = (isOpen: boolean) => {
    this._hasForm = isOpen;
    this.update();
  };

  private _hasForm = false;
}

function section(title: string, content: Widget, buttons: ToolbarButton[]): PanelWithToolbar {
  const panel = new PanelWithToolbar();
  panel.title.label = title;
  panel.addClass('jp-ddl-scrolls');
  panel.addWidget(content);
  buttons.forEach((button, index) => panel.toolbar.addItem(`ddl-${index}`, button));
  return panel;
}
