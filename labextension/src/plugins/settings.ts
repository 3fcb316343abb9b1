/** Follows the settings: how often is drawn, and on which side the panel is. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { Store } from '../model/store';
import type { DdlPanel } from './panel';

export async function followSettings(
  registry: ISettingRegistry,
  id: string,
  app: JupyterFrontEnd,
  panel: DdlPanel,
  store: Store
): Promise<void> {
  const settings = await registry.load(id);
  let side = 'left';
  const apply = () => {
    const rate = settings.get('refreshPerSecond').composite;
    store.refreshPerSecond = typeof rate === 'number' && rate > 0 ? rate : 4;
    const wanted = settings.get('side').composite === 'right' ? 'right' : 'left';
    if (wanted !== side) {
      side = wanted;
      app.shell.add(panel, side, { rank: 650, type: 'Clusters and runs' });
    }
  };
  settings.changed.connect(apply);
  apply();
}
