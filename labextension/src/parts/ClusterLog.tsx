/** The end of a cluster's log, or of one worker's lines, read again every two seconds. */

import * as React from 'react';

import { counted } from '../format';
import type { Link } from '../model/link';
import { FilterField } from './controls';

const EVERY_MS = 2000;
const N_LINES = 300;

export function ClusterLog(props: {
  link: Link;
  cluster: string;
  worker: string | null;
  onAllWorkers: () => void;
  isVisible: () => boolean;
}): React.ReactElement {
  const { link, cluster, worker, isVisible } = props;
  const [contains, setContains] = React.useState('');
  const [isWhole, setIsWhole] = React.useState(false);
  const { lines, nForeign, trouble } = useLines(link, cluster, worker, contains, isWhole, isVisible);
  const box = React.useRef<HTMLPreElement>(null);
  useEndInSight(box, lines);
  return (
    <section className="jp-ddl-log" aria-label={`Log of cluster ${cluster}`}>
      <div className="jp-ddl-row">
        <h3>Log{worker === null ? '' : ` of ${worker}`}</h3>
        {worker !== null && (
          <button type="button" className="jp-ddl-link" onClick={props.onAllWorkers}>
            all workers
          </button>
        )}
        <FilterField
          placeholder="Filter lines"
          label="Filter lines of the log"
          value={contains}
          onChange={setContains}
        />
      </div>
      {(nForeign > 0 || isWhole) && (
        <label className="jp-ddl-fact">
          <input
            type="checkbox"
            checked={isWhole}
            onChange={event => setIsWhole(event.target.checked)}
          />{' '}
          {isWhole ? 'with lines of Dask' : `with ${counted(nForeign, 'line')} of Dask`} and other
          libraries
        </label>
      )}
      <div className="jp-ddl-wrong" role="alert">
        {trouble}
      </div>
      <pre ref={box} tabIndex={0} aria-label="Lines of the log">
        {lines === null ? 'Reading…' : lines.length ? lines.join('\n') : 'No such lines.'}
      </pre>
    </section>
  );
}

function useLines(
  link: Link,
  cluster: string,
  worker: string | null,
  contains: string,
  isWhole: boolean,
  isVisible: () => boolean
): { lines: readonly string[] | null; nForeign: number; trouble: string } {
  const [lines, setLines] = React.useState<readonly string[] | null>(null);
  const [nForeign, setNForeign] = React.useState(0);
  const [trouble, setTrouble] = React.useState('');
  React.useEffect(() => {
    let isOver = false;
    let timer = 0;
    const look = async () => {
      if (isVisible()) {
        try {
          const answer = await link.ask({
            kind: 'get_cluster_log',
            cluster,
            worker,
            contains,
            n_lines: N_LINES,
            with_foreign: isWhole
          });
          if (!isOver && answer.kind === 'cluster_log') {
            setLines(answer.lines);
            setNForeign(answer.n_foreign);
            setTrouble('');
          }
        } catch (error) {
          if (!isOver) {
            setTrouble(error instanceof Error ? error.message : String(error));
          }
        }
      }
      if (!isOver) {
        timer = window.setTimeout(() => void look(), EVERY_MS);
      }
    };
    // After a pause, so that typing a filter does not ask for every letter.
    timer = window.setTimeout(() => void look(), contains ? 200 : 0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [link, cluster, worker, contains, isWhole, isVisible]);
  return { lines, nForeign, trouble };
}

/** Stay at the end, unless somebody has scrolled up to read. */
function useEndInSight(
  box: React.RefObject<HTMLElement>,
  lines: readonly string[] | null
): void {
  const isAtEnd = React.useRef(true);
  React.useEffect(() => {
    const element = box.current;
    const onScroll = () => {
      isAtEnd.current =
        element !== null &&
        element.scrollHeight - element.scrollTop - element.clientHeight < 30;
    };
    element?.addEventListener('scroll', onScroll);
    return () => element?.removeEventListener('scroll', onScroll);
  }, [box]);
  React.useLayoutEffect(() => {
    if (box.current !== null && isAtEnd.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [box, lines]);
}
