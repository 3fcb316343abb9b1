/** Follows the settings: how often the panel is redrawn, and on which side it is. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { Store } from '../model/store';
import type { DdlPanel } from './panel';

export const PANEL_PLACE = { rank: 650, type: 'Clusters and runs' };

export async function followSettings(
  registry: ISettingRegistry,
  id: string,
  app: JupyterFrontEnd,
  panel: DdlPanel,
  store: Store
): Promise<void> {
  const settings = await registry.load(id);
  const apply = () => {
    const rate = settings.get('refreshPerSecond').composite;
    store.refreshPerSecond = typeof rate === 'number' && rate > 0 ? rate : 4;
    const side = settings.get('side').composite === 'right' ? 'right' : 'left';
    if (![...app.shell.widgets(side)].includes(panel)) {
      const wasShown = panel.isVisible;
      app.shell.add(panel, side, PANEL_PLACE);
      if (wasShown) {
        app.shell.activateById(panel.id);
      }
    }
  };
  // The layout that is restored may still have the panel where it was before.
  await app.restored;
  settings.changed.connect(apply);
  apply();
}
