/** Inserts code into the current notebook. */

import { Notification } from '@jupyterlab/apputils';
import { NotebookActions } from '@jupyterlab/notebook';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { withExtension } from '../model/runs';

/** Into an empty cell, else into a new one below the active one. Returns the notebook. */
export function insertCode(
  lines: string,
  tracker: INotebookTracker | null
): NotebookPanel | null {
  const panel = tracker?.currentWidget ?? null;
  if (panel === null) {
    Notification.warning('No notebook to insert into: open one first.', {
      autoClose: 5000
    });
    return null;
  }
  const notebook = panel.content;
  const sources = notebook.widgets.map(cell => cell.model.sharedModel.getSource());
  const code = withExtension(lines, sources);
  const active = notebook.activeCell;
  const isFree =
    active !== null &&
    active.model.type === 'code' &&
    active.model.sharedModel.getSource().trim() === '';
  if (!isFree) {
    NotebookActions.insertBelow(notebook);
  }
  notebook.activeCell?.model.sharedModel.setSource(code);
  return panel;
}

/** The same, and run it. */
export async function runCode(lines: string, tracker: INotebookTracker | null): Promise<string> {
  const panel = insertCode(lines, tracker);
  if (panel !== null) {
    await NotebookActions.run(panel.content, panel.sessionContext);
  }
  return panel?.id ?? '';
}
