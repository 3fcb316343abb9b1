/** Asks for the telemetry of the clusters in the list, as long as the page is in sight. */

import type { Link } from './link';
import type { Store } from './store';

/** Of more clusters than this, only open pages show telemetry. */
const MAX_WATCHED = 8;

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
