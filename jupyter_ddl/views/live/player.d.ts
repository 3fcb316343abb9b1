export interface IPlayer {
  destroy(): void;
}

/** Play a timeline, as `unpacked` of timeline.js gives it, in an element; live.css has the styles. */
export function play(
  element: HTMLElement,
  timeline: object,
  options?: { speed?: number; isPaused?: boolean; onEnd?: () => void }
): IPlayer;
