/** Workers or GPUs as a field of cells. Only what is in sight is drawn, so thousands scroll. */

import * as React from 'react';

import { cellAt, cellBeside, cellCorner, gridHeight, makeGrid } from '../model/grid';
import type { HeatCell } from '../model/heat';
import { useSize } from './hooks';
import { paintHeat } from './paintHeat';

export interface HeatMapProps {
  cells: readonly HeatCell[];
  /** What the colour means, for screen readers. */
  label: string;
  onPick: (cell: HeatCell) => void;
}

export function HeatMap(props: HeatMapProps): React.ReactElement {
  const { cells, label, onPick } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const canvas = React.useRef<HTMLCanvasElement>(null);
  const { width, height } = useSize(box);
  const [marked, setMarked] = React.useState<number | null>(null);
  const grid = React.useMemo(() => makeGrid(cells.length, width), [cells.length, width]);

  const paint = React.useCallback(() => {
    if (box.current !== null && canvas.current !== null && width > 0) {
      paintHeat(canvas.current, cells, grid, {
        top: box.current.scrollTop,
        width,
        height,
        marked
      });
    }
  }, [cells, grid, width, height, marked]);
  const soon = useFrame(paint);
  React.useEffect(soon, [soon, paint]);
  useThemeChange(soon);

  const onMove = (event: React.MouseEvent) => {
    const area = event.currentTarget.getBoundingClientRect();
    const top = box.current?.scrollTop ?? 0;
    setMarked(cellAt(grid, event.clientX - area.left, event.clientY - area.top + top));
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    const cell = marked === null ? undefined : cells[marked];
    if (event.key === 'Enter' && cell !== undefined) {
      onPick(cell);
      return;
    }
    const next = cellBeside(grid, marked ?? 0, event.key);
    if (next !== null) {
      event.preventDefault();
      setMarked(marked === null ? 0 : next);
      reveal(box.current, cellCorner(grid, next)[1], grid.pitch);
    }
  };
  const cell = marked === null ? undefined : cells[marked];
  return (
    <div className="jp-ddl-heat">
      <div
        ref={box}
        className="jp-ddl-heat-box"
        role="application"
        aria-label={`${label} of ${cells.length} cells; arrow keys move, Enter shows the log`}
        tabIndex={0}
        style={{ height: Math.min(gridHeight(grid) || grid.pitch, 240) }}
        onScroll={soon}
        onKeyDown={onKeyDown}
        onBlur={() => setMarked(null)}
      >
        <div style={{ height: gridHeight(grid) }}>
          <canvas
            ref={canvas}
            style={{ width, height }}
            onMouseMove={onMove}
            onMouseLeave={() => setMarked(null)}
            onClick={() => cell !== undefined && onPick(cell)}
          />
        </div>
      </div>
      <div className="jp-ddl-heat-legend" aria-hidden="true">
        0 % <span /> 100 %
      </div>
      <div className="jp-ddl-heat-text" role="status">
        {cell?.text ?? ''}
      </div>
    </div>
  );
}

/** Calls at most once per frame. */
function useFrame(call: () => void): () => void {
  const newest = React.useRef(call);
  newest.current = call;
  const frame = React.useRef(0);
  React.useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return React.useCallback(() => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => newest.current());
  }, []);
}

function useThemeChange(call: () => void): void {
  React.useEffect(() => {
    const observer = new MutationObserver(call);
    observer.observe(document.body, { attributeFilter: ['data-jp-theme-name'] });
    return () => observer.disconnect();
  }, [call]);
}

function reveal(box: HTMLElement | null, top: number, pitch: number): void {
  if (box !== null && top < box.scrollTop) {
    box.scrollTop = top;
  } else if (box !== null && top + pitch > box.scrollTop + box.clientHeight) {
    box.scrollTop = top + pitch - box.clientHeight;
  }
}
