// Elements, without any markup: what comes from a run only ever becomes text.

const SVG = "http://www.w3.org/2000/svg";

// Invisible, or able to change the direction of what stands beside it.
const UNPRINTABLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[ -/]*[0-~])/g;

/**
 * One line of text as it may be shown.
 * @param {unknown} value
 * @param {number} [limit] longest result in characters
 * @returns {string}
 */
export function clean(value, limit = 300) {
  const text = value === null || value === undefined ? "" : String(value);
  const short = text.length > 4 * limit ? text.slice(0, 4 * limit) : text;
  const line = short.replace(ANSI, "").replace(/[\t\n\v\f\r]+/g, " ").replace(UNPRINTABLE, "");
  return line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
}

/**
 * An HTML element.
 * @param {string} tag
 * @param {Record<string, any>} [props] `text`, `class`, `on` (listeners), else attributes
 * @param {...(Node | null)} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node | null)} children
 * @returns {SVGElement}
 */
export function s(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "text") element.textContent = value;
    else if (name === "on") {
      for (const [kind, listener] of Object.entries(value)) element.addEventListener(kind, listener);
    } else setAttribute(element, name, value);
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/**
 * Set an attribute if it differs; null or false takes it away.
 * @param {Element} element
 * @param {string} name
 * @param {string | number | boolean | null | undefined} value
 */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/**
 * Set the text of an element if it differs.
 * @param {Node} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Show or hide an element.
 * @param {HTMLElement | SVGElement} element
 * @param {boolean} visible
 */
export function show(element, visible) {
  setAttribute(element, "hidden", !visible);
}

/**
 * Make a parent's children match a list, reusing those that are there.
 * @template T
 * @param {Element} parent
 * @param {readonly T[]} items
 * @param {() => any} make a child element
 * @param {(child: any, item: T, index: number) => void} update
 */
export function repeat(parent, items, make, update) {
  while (parent.childElementCount > items.length) parent.lastElementChild.remove();
  while (parent.childElementCount < items.length) parent.append(make());
  let child = parent.firstElementChild;
  items.forEach((item, index) => {
    update(child, item, index);
    child = child.nextElementSibling;
  });
}

/**
 * Listeners and timers of one view, ended together.
 */
export class Scope {
  constructor() {
    this._ends = [];
    this.closed = false;
  }

  /** @param {() => void} end */
  add(end) {
    this._ends.push(end);
  }

  /**
   * @param {EventTarget} target
   * @param {string} kind
   * @param {(event: any) => void} listener
   */
  listen(target, kind, listener) {
    target.addEventListener(kind, listener);
    this.add(() => target.removeEventListener(kind, listener));
  }

  /**
   * @param {() => void} action
   * @param {number} everyMs
   */
  every(action, everyMs) {
    const timer = setInterval(action, everyMs);
    this.add(() => clearInterval(timer));
  }

  /**
   * Call with an element's width whenever it is another one; not while it is out of sight.
   * @param {Element} element
   * @param {(width: number) => void} action
   */
  watchWidth(element, action) {
    if (typeof ResizeObserver === "undefined") return;
    let known = 0;
    const observer = new ResizeObserver(() => {
      const width = Math.round(element.clientWidth);
      if (width > 0 && width !== known) action((known = width));
    });
    observer.observe(element);
    this.add(() => observer.disconnect());
  }

  close() {
    this.closed = true;
    for (const end of this._ends.splice(0)) end();
  }
}
