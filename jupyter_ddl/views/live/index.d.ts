/** Carries JSON objects as jupyter_ddl/protocol/view_messages.py describes them; both ways may lose some. */
export interface ILiveChannel {
  send(message: object): void;
  /** Returns a function that ends the subscription. */
  subscribe(callback: (message: unknown) => void): () => void;
}

export interface ILiveOptions {
  /** Only messages of this run are shown. */
  runId?: string;
  /** What is said before the first news. */
  waiting?: string;
  /** Of a recording: Unix seconds of the moment that is shown. */
  clock?: () => number;
  /** Whether tracebacks stand below the view. */
  isInCell?: boolean;
  /** What the page around can do. */
  host?: {
    open?: () => void;
    scale?: (cluster: string) => void;
    saveTrace?: (runId: string, file: string) => void;
  };
}

export interface ILiveView {
  destroy(): void;
  /** Older news count again. */
  forget(): void;
  /** Show this trial in full. */
  choose(trial: number): void;
}

/** Show a run in an element; live.css has the styles. */
export function mount(
  element: HTMLElement,
  channel: ILiveChannel,
  options?: ILiveOptions
): ILiveView;
