/** Curves of several runs in one chart; live.css has the styles. */
export function mountCompared(
  element: HTMLElement,
  /** The answer to a request, which may be a refusal. */
  ask: (message: object) => Promise<unknown>,
  runs: { id: string; name: () => string }[]
): { destroy(): void };
