/** The one connection of a page to its server, and what a page asks for as long as it is in sight. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { Link } from '../model/link';
import type { Store } from '../model/store';

const ROUTE = ['jupyter-ddl', 'api', 'live'];
/** Of more clusters than this, only open pages show telemetry. */
const MAX_WATCHED = 8;

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
    onMessage: message => store.hear(message),
    isInSight: () => !document.hidden
  });
  // A page that was asleep or offline tries at once, not when its next turn comes.
  const retry = () => link.retryNow();
  window.addEventListener('online', retry);
  document.addEventListener('visibilitychange', retry);
  return link;
}

/** Asks for the telemetry of the clusters in the list. */
export function watchClusters(store: Store, link: Link): void {
  const watched = new Map<string, () => void>();
  const follow = () => {
    const wanted = new Set(
      document.hidden ? [] : store.known.clusters.slice(0, MAX_WATCHED).map(({ name }) => name)
    );
    for (const [name, unwatch] of watched) {
      if (!wanted.has(name)) {
        watched.delete(name);
        unwatch();
      }
    }
    for (const name of wanted) {
      if (!watched.has(name)) {
        watched.set(name, link.watch('cluster', name));
      }
    }
  };
  store.subscribe(follow);
  document.addEventListener('visibilitychange', follow);
}
