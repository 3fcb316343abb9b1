/** Where the cells of a heat map lie, so that only those in sight are drawn. */

export interface Grid {
  nCells: number;
  nColumns: number;
  /** Side of a cell with its gap, in CSS pixels. */
  pitch: number;
}

export const GAP = 2;
/** From this pitch on, a cell has room for its number. */
export const ROOMY = 44;
const SMALL = 16;
const MIDDLE = 24;

/** Few cells are large, many are small. */
export function makeGrid(nCells: number, width: number): Grid {
  const pitch = nCells <= 32 ? ROOMY : nCells <= 200 ? MIDDLE : SMALL;
  return { nCells, nColumns: Math.max(1, Math.floor(width / pitch)), pitch };
}

export function gridHeight(grid: Grid): number {
  return Math.ceil(grid.nCells / grid.nColumns) * grid.pitch;
}

/** First cell in sight, and the one behind the last. */
export function cellsInSight(grid: Grid, top: number, height: number): [number, number] {
  const first = Math.max(0, Math.floor(top / grid.pitch)) * grid.nColumns;
  const behind = Math.ceil((top + height) / grid.pitch) * grid.nColumns;
  return [Math.min(first, grid.nCells), Math.min(behind, grid.nCells)];
}

/** Corner of a cell, from the grid's own. */
export function cellCorner(grid: Grid, index: number): [number, number] {
  return [
    (index % grid.nColumns) * grid.pitch,
    Math.floor(index / grid.nColumns) * grid.pitch
  ];
}

/** The cell at a point; null: none. */
export function cellAt(grid: Grid, x: number, y: number): number | null {
  const column = Math.floor(x / grid.pitch);
  const index = Math.floor(y / grid.pitch) * grid.nColumns + column;
  return column >= 0 && column < grid.nColumns && index >= 0 && index < grid.nCells ? index : null;
}

/** Where an arrow key leads from a cell. */
export function cellBeside(grid: Grid, index: number, key: string): number | null {
  const step: Record<string, number> = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -grid.nColumns,
    ArrowDown: grid.nColumns,
    Home: -index,
    End: grid.nCells - 1 - index
  };
  const by = step[key];
  if (by === undefined) {
    return null;
  }
  const next = index + by;
  return next >= 0 && next < grid.nCells ? next : index;
}
