/** Inserts code into the current notebook. */

import { Notification } from '@jupyterlab/apputils';
import { NotebookActions } from '@jupyterlab/notebook';
import type { INotebookTracker } from '@jupyterlab/notebook';

import { attachCode } from '../model/runs';

/** Into an empty cell, else into a new one below the active one. Returns the notebook's id. */
export function insertAttachCode(
  runId: string,
  tracker: INotebookTracker | null
): string | null {
  const panel = tracker?.currentWidget ?? null;
  if (panel === null) {
    Notification.warning('No notebook to insert into: open one first.', {
      autoClose: 5000
    });
    return null;
  }
  const notebook = panel.content;
  const sources = notebook.widgets.map(cell => cell.model.sharedModel.getSource());
  const code = attachCode(runId, sources);
  const active = notebook.activeCell;
  const isFree =
    active !== null &&
    active.model.type === 'code' &&
    active.model.sharedModel.getSource().trim() === '';
  if (!isFree) {
    NotebookActions.insertBelow(notebook);
  }
  notebook.activeCell?.model.sharedModel.setSource(code);
  return panel.id;
}
