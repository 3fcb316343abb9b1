// A canvas below the marks of a chart, for more of them than a page has elements for.

import { h, show } from "./dom.js";

/** As sharp as the screen is. */
export class Layer {
  /** @param {number} height */
  constructor(height) {
    this._height = height;
    this._turn = 0;
    this.element = h("canvas", { class: "ddl-layer", "aria-hidden": "true", hidden: true });
  }

  /** Nothing is painted. */
  hide() {
    this._turn++;
    show(this.element, false);
  }

  /**
   * Paint anew: pieces one after the other, each in a frame of its own, so that none is long.
   * @param {number} width
   * @param {((pen: CanvasRenderingContext2D) => void)[]} pieces
   */
  paint(width, pieces) {
    const turn = ++this._turn;
    const ratio = globalThis.devicePixelRatio || 1;
    const { element } = this;
    show(element, true);
    const [w, tall] = [Math.round(width * ratio), Math.round(this._height * ratio)];
    const next = (n) => {
      if (turn !== this._turn || n >= pieces.length) return;
      const pen = element.getContext("2d");
      if (n === 0) {
        if (element.width !== w) element.width = w;
        if (element.height !== tall) element.height = tall;
        pen.setTransform(1, 0, 0, 1, 0, 0);
        pen.clearRect(0, 0, w, tall);
      }
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pieces[n](pen);
      requestAnimationFrame(() => next(n + 1));
    };
    next(0);
  }

  /** A colour of the page's styles as a canvas takes it. */
  color(css) {
    this.element.style.color = css;
    return getComputedStyle(this.element).color;
  }
}

/**
 * Places of dots that would hide each other, once.
 * @param {Float32Array} places x and y one after the other
 * @returns {Float32Array} to the nearest half pixel
 */
export function cellsOf(places) {
  const seen = new Set();
  for (let i = 0; i < places.length; i += 2) seen.add(Math.round(places[i] * 2) * 65536 + Math.round(places[i + 1] * 2));
  const cells = new Float32Array(2 * seen.size);
  let n = 0;
  for (const key of seen) {
    cells[n++] = Math.floor(key / 65536) / 2;
    cells[n++] = (key % 65536) / 2;
  }
  return cells;
}

const DOT = 3;

/** Dots as a piece to paint. */
export function dots(cells, color, opacity) {
  return (pen) => {
    pen.fillStyle = color;
    pen.globalAlpha = opacity;
    for (let i = 0; i < cells.length; i += 2) pen.fillRect(cells[i] - DOT / 2, cells[i + 1] - DOT / 2, DOT, DOT);
  };
}
