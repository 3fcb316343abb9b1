/** Draws the cells in sight onto a canvas. */

import { cellCorner, cellsInSight, GAP } from '../model/grid';
import type { Grid } from '../model/grid';
import type { HeatCell } from '../model/workers';

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
  const style = getComputedStyle(canvas);
  const [low, high, text] = ['low', 'high', 'mark'].map(name =>
    style.getPropertyValue(`--jp-ddl-heat-${name}`).trim()
  ) as [string, string, string];
  fit(canvas, context, sight);
  const side = grid.pitch - GAP;
  const [first, behind] = cellsInSight(grid, sight.top, sight.height);
  for (let index = first; index < behind; index += 1) {
    const [x, y] = cellCorner(grid, index);
    const share = cells[index]?.share ?? null;
    const top = y - sight.top;
    if (share === null) {
      context.strokeStyle = low;
      context.strokeRect(x + 0.5, top + 0.5, side - 1, side - 1);
    } else {
      context.fillStyle = low;
      context.fillRect(x, top, side, side);
      context.globalAlpha = Math.min(1, Math.max(0, share));
      context.fillStyle = high;
      context.fillRect(x, top, side, side);
      context.globalAlpha = 1;
    }
    if (index === sight.marked) {
      context.strokeStyle = text;
      context.lineWidth = 2;
      context.strokeRect(x + 1, top + 1, side - 2, side - 2);
      context.lineWidth = 1;
    }
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
