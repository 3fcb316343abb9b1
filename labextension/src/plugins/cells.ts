/** Shows runs in the outputs of cells; ranked above widgets, which need their kernel. */

import { URLExt } from '@jupyterlab/coreutils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ServerConnection } from '@jupyterlab/services';

import type { Actions } from '../actions';
import type { Link } from '../model/link';
import type { Store } from '../model/store';
import { RUN_MIME, RunCell } from '../parts/RunCell';

/** JupyterLab's widgets have -10. */
const RANK = -20;

async function timeline(digest: string): Promise<ArrayBuffer | null> {
  const settings = ServerConnection.makeSettings();
  const url = URLExt.join(settings.baseUrl, 'jupyter-ddl', 'api', 'timelines', digest);
  try {
    const answer = await ServerConnection.makeRequest(url, {}, settings);
    return answer.ok ? await answer.arrayBuffer() : null;
  } catch {
    return null;
  }
}

export function showInCells(
  registry: IRenderMimeRegistry,
  notebooks: INotebookTracker | null,
  store: Store,
  link: Link,
  actions: () => Actions
): void {
  // A notebook has a registry of its own, which knows its kernel's widgets.
  const rendermime = (node: HTMLElement) =>
    notebooks?.find(each => each.content.node.contains(node))?.content.rendermime ?? registry;
  const context = { store, link, actions, rendermime, timeline };
  registry.addFactory(
    {
      // It runs nothing that an output holds: an id is all that it takes from there.
      safe: true,
      mimeTypes: [RUN_MIME],
      createRenderer: () => new RunCell(context)
    },
    RANK
  );
}
