/** The one connection of a page to its server. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { Link } from '../model/link';
import type { Store } from '../model/store';

const ROUTE = ['jupyter-ddl', 'api', 'live'];

export function connect(store: Store): Link {
  const settings = ServerConnection.makeSettings();
  const open = () => {
    let url = URLExt.join(settings.wsUrl, ...ROUTE);
    if (settings.appendToken && settings.token) {
      url += `?token=${encodeURIComponent(settings.token)}`;
    }
    return new settings.WebSocket(url);
  };
  const link = new Link({
    open,
    onState: state => store.setState(state),
    onMessage: message => store.hear(message)
  });
  // A page that was asleep or offline tries at once, not when its next turn comes.
  const retry = () => link.retryNow();
  window.addEventListener('online', retry);
  document.addEventListener('visibilitychange', retry);
  return link;
}
