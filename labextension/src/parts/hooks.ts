import * as React from 'react';

import type { Known, Store } from '../model/store';

/** What is known; redraws whenever it changes. */
export function useKnown(store: Store): Known {
  return React.useSyncExternalStore(store.subscribe, store.read);
}

/** The time of this browser in milliseconds, once a second. */
export function useNow(): number {
  const [now, setNow] = React.useState(() => Date.now());
  React.useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** The width of an element, followed. */
export function useSize(ref: React.RefObject<HTMLElement>): { width: number; height: number } {
  const [size, setSize] = React.useState({ width: 0, height: 0 });
  React.useEffect(() => {
    const element = ref.current;
    if (element === null) {
      return;
    }
    const observer = new ResizeObserver(() =>
      setSize({ width: element.clientWidth, height: element.clientHeight })
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, [ref]);
  return size;
}
