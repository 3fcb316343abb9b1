/** Draws the cells in sight onto a canvas. */

import { percent } from '../format';
import { cellCorner, cellsInSight, GAP, ROOMY } from '../model/grid';
import type { Grid } from '../model/grid';
import type { HeatCell } from '../model/heat';

export interface Sight {
  top: number;
  width: number;
  height: number;
  /** The cell with a frame around it; null: none. */
  marked: number | null;
}

/** Colours come from the element's style, so they follow the theme. */
export function paintHeat(
  canvas: HTMLCanvasElement,
  cells: readonly HeatCell[],
  grid: Grid,
  sight: Sight
): void {
  const context = canvas.getContext('2d');
  if (context === null) {
    return;
  }
  const colours = coloursOf(canvas);
  fit(canvas, context, sight);
  const side = grid.pitch - GAP;
  const [first, behind] = cellsInSight(grid, sight.top, sight.height);
  for (let index = first; index < behind; index += 1) {
    const [x, y] = cellCorner(grid, index);
    const cell = { x, y: y - sight.top, side, share: cells[index]?.share ?? null };
    paintCell(context, colours, cell);
    if (index === sight.marked) {
      context.strokeStyle = colours.mark;
      context.lineWidth = 2;
      context.strokeRect(cell.x + 1, cell.y + 1, side - 2, side - 2);
      context.lineWidth = 1;
    }
  }
}

interface Colours {
  low: string;
  high: string;
  mark: string;
  font: string;
}

interface Square {
  x: number;
  y: number;
  side: number;
  share: number | null;
}

function coloursOf(canvas: HTMLCanvasElement): Colours {
  const style = getComputedStyle(canvas);
  const read = (name: string) => style.getPropertyValue(`--jp-ddl-heat-${name}`).trim();
  return {
    low: read('low'),
    high: read('high'),
    mark: read('mark'),
    font: `11px ${style.fontFamily}`
  };
}

/** A frame alone means: not measured. */
function paintCell(context: CanvasRenderingContext2D, colours: Colours, cell: Square): void {
  const { x, y, side, share } = cell;
  if (share === null) {
    context.strokeStyle = colours.low;
    context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
  } else {
    context.fillStyle = colours.low;
    context.fillRect(x, y, side, side);
    context.globalAlpha = Math.min(1, Math.max(0, share));
    context.fillStyle = colours.high;
    context.fillRect(x, y, side, side);
    context.globalAlpha = 1;
  }
  if (side + GAP >= ROOMY) {
    context.fillStyle = colours.mark;
    context.font = colours.font;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillText(percent(share), x + side / 2, y + side / 2);
  }
}

/** Clear the canvas, at the screen's own resolution. */
function fit(
  canvas: HTMLCanvasElement,
  context: CanvasRenderingContext2D,
  { width, height }: Sight
): void {
  const scale = window.devicePixelRatio || 1;
  const pixels = [Math.round(width * scale), Math.round(height * scale)] as const;
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
    [canvas.width, canvas.height] = pixels;
  }
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
}
