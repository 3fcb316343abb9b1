/** One run in the output of a cell: the same live view as on its page, whatever the kernel does. */

import type { IRenderMime, IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';

// Plain ES modules, the same that the view of the widget is made of.
import { mount } from '../../../jupyter_ddl/views/live/index.js';
import { play } from '../../../jupyter_ddl/views/live/player.js';
import { unpacked } from '../../../jupyter_ddl/views/live/timeline.js';
import type { Actions } from '../actions';
import type { Link } from '../model/link';
import { RunChannel } from '../model/runChannel';
import type { Store } from '../model/store';

export const RUN_MIME = 'application/vnd.jupyter-ddl.run+json';
const MAX_ID = 80;
const DIGEST = /^[0-9a-f]{64}$/;
const MAX_SPEED = 1000;
const WIDGET_MIME = 'application/vnd.jupyter.widget-view+json';

/** A view that comes at once is not preceded by another picture. */
const AT_ONCE_MS = 150;
/** What the server may take to tell of a run that is in sight. */
const PATIENCE_MS = 3_000;
const UNREACHABLE =
  'This run can’t be followed here: JupyterLab’s server is out of reach, or jupyter_ddl is not ' +
  'installed where it runs.';
/** The server is there: what takes so long is a record of many trials. */
const READING = 'JupyterLab’s server is reading the record of this run, which may take a while.';
const NO_PLAYER =
  'This recording is not kept by JupyterLab’s server any more: run the cell again to play it.';
const STILL_LOADING = 'Loading widget';
const N_TRIES = 3;
/** JupyterLab's widgets say so where a kernel is gone that had one. */
const NO_WIDGET = 'Error displaying widget';

export interface CellContext {
  store: Store;
  link: Link;
  actions: () => Actions;
  /** Bytes of a recording's timeline; null: the server has none, or does not answer. */
  timeline: (digest: string) => Promise<ArrayBuffer | null>;
  /** What draws the rest of an output that this node stands in. */
  rendermime: (node: HTMLElement) => IRenderMimeRegistry;
}

/**
 * The run's view as soon as the server tells of it; until then, and where it never does, what else
 * the output holds: the widget of a kernel that lives, else the form that was saved.  Of a recording
 * the server keeps what is played.
 */
export class RunCell extends Widget implements IRenderMime.IRenderer {
  constructor(private readonly _context: CellContext) {
    super();
    this.addClass('jp-ddl-cell');
    const layout = new PanelLayout();
    this.layout = layout;
    this._note.className = 'jp-ddl-cell-note';
    this._note.setAttribute('role', 'note');
    this._note.hidden = true;
    // A widget like the saved form: a layout puts those where their order says.
    layout.addWidget(new Widget({ node: this._note }));
    this._sight = new IntersectionObserver(
      entries => this._setInSight(entries.some(each => each.isIntersecting)),
      { rootMargin: '200px' }
    );
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const runId = runIdIn(model.data[RUN_MIME]);
    this._model = model;
    const recording = recordingIn(model.data[RUN_MIME]);
    if (recording !== null) {
      this._leave();
      await this._play(recording);
    } else if (runId !== this._runId || this._channel === null) {
      this._leave();
      this._runId = runId;
      this._follow();
    } else if (this._saved !== null) {
      await this._showSaved();
    }
  }

  override dispose(): void {
    this._leave();
    this._sight.disconnect();
    super.dispose();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._sight.observe(this.node);
    // Only here it is known which notebook's widgets there are.
    if (this._why !== '' && this._saved === null) {
      void this._showSaved();
    }
  }

  protected override onBeforeDetach(message: Message): void {
    this._sight.unobserve(this.node);
    this._setInSight(false);
    super.onBeforeDetach(message);
  }

  /** The first news of the run make its view. */
  private _follow(): void {
    const { link, store } = this._context;
    const channel = new RunChannel(
      link,
      store,
      this._runId,
      text => this._giveUp(`This run can’t be followed here: ${text}.`)
    );
    this._channel = channel;
    this._stopWaiting = channel.subscribe(message => {
      if ((message as { kind?: unknown }).kind === 'run') {
        this._begin(channel);
      }
    });
    this._still = setTimeout(() => void this._showSaved(), AT_ONCE_MS);
    this._setInSight(this._isInSight);
  }

  /** Out of sight, the run is not watched; the view keeps what it has. */
  private _setInSight(isInSight: boolean): void {
    this._isInSight = isInSight;
    this._channel?.setVisible(isInSight);
    clearTimeout(this._patience);
    if (isInSight && this._channel !== null && this._view === null) {
      this._patience = setTimeout(() => this._explain(), PATIENCE_MS);
    }
  }

  /** Nothing has come yet; the server's own word on why, if there was one, stands. */
  private _explain(): void {
    if (['', READING, UNREACHABLE].includes(this._why)) {
      this._giveUp(this._context.link.state === 'connected' ? READING : UNREACHABLE);
      this._patience = setTimeout(() => this._explain(), PATIENCE_MS);
    }
  }

  private _begin(channel: RunChannel): void {
    this._stopWaiting();
    clearTimeout(this._still);
    clearTimeout(this._patience);
    this._dropSaved();
    this._say('');
    const actions = this._context.actions();
    const host = {
      open: () => actions.openRun(this._runId),
      scale: (name: string) => void actions.scaleCluster(name),
      saveTrace: (runId: string, file: string) => void actions.saveTrace(runId, file)
    };
    this._view = mount(this.node, channel, { runId: this._runId, isInCell: true, host });
  }

  /** The timeline that the server keeps; without it the widget plays, while its kernel lives. */
  private async _play({ digest, speed }: Recording): Promise<void> {
    const asked = this._model;
    const bytes = digest === '' ? null : await this._context.timeline(digest);
    const timeline = bytes === null ? null : await unpacked(bytes).catch(() => null);
    if (this.isDisposed || this._model !== asked) {
      return;
    }
    if (timeline !== null) {
      const isPaused = matchMedia('(prefers-reduced-motion: reduce)').matches;
      this._view = play(this.node, timeline, { speed, isPaused });
      return;
    }
    this._why = NO_PLAYER;
    if (this.isAttached) {
      await this._showSaved();
    }
  }

  private _leave(): void {
    clearTimeout(this._still);
    clearTimeout(this._patience);
    this._stopWaiting();
    this._view?.destroy();
    this._channel?.dispose();
    this._view = null;
    this._channel = null;
    this._why = '';
    this._dropSaved();
    this._say('');
  }

  /** The server does not know the run, or does not answer; it is asked on. */
  private _giveUp(why: string): void {
    if (this._view === null && !this.isDisposed && this._why !== why) {
      this._why = why;
      void this._showSaved();
    }
  }

  /** What stands beside the run's id in the output: the best of it that can be drawn. */
  private async _showSaved(): Promise<void> {
    const model = this._model;
    if (model === null) {
      return;
    }
    const { [RUN_MIME]: _own, ...rest } = model.data;
    const rendermime = this._context.rendermime(this.node);
    const best = rendermime.preferredMimeType(rest, model.trusted ? 'any' : 'ensure');
    if (this._why !== '' && best === WIDGET_MIME) {
      await this._showWidget(model);
    } else {
      await this._showStill(model);
    }
  }

  private async _showWidget(model: IRenderMime.IMimeModel, nTries = N_TRIES): Promise<void> {
    const drawn = this._place(WIDGET_MIME);
    const says = (text: string) => (drawn.node.textContent ?? '').startsWith(text);
    // It may say so at once, or when the kernel has been asked.
    const observer = new MutationObserver(() => {
      if (says(NO_WIDGET)) {
        observer.disconnect();
        if (this._saved === drawn) {
          void this._showStill(model);
        }
      }
    });
    observer.observe(drawn.node, { childList: true });
    // What is made before its notebook knows of a kernel never hears of one.
    setTimeout(() => {
      if (this._saved === drawn && says(STILL_LOADING)) {
        void (nTries > 1 ? this._showWidget(model, nTries - 1) : this._showStill(model));
      }
    }, PATIENCE_MS);
    await drawn.renderModel(model);
  }

  private async _showStill(model: IRenderMime.IMimeModel): Promise<void> {
    this._say(this._why && `${this._why} This is what was saved:`);
    await this._place('text/html' in model.data ? 'text/html' : 'text/plain').renderModel(model);
  }

  private _place(mime: string): IRenderMime.IRenderer {
    this._dropSaved();
    this._saved = this._context.rendermime(this.node).createRenderer(mime);
    (this.layout as PanelLayout).addWidget(this._saved);
    return this._saved;
  }

  private _dropSaved(): void {
    this._saved?.dispose();
    this._saved = null;
  }

  private _say(text: string): void {
    this._note.textContent = text;
    this._note.hidden = text === '';
  }

  private readonly _note = document.createElement('div');
  private readonly _sight: IntersectionObserver;
  private _isInSight = false;
  private _runId = '';
  private _model: IRenderMime.IMimeModel | null = null;
  private _channel: RunChannel | null = null;
  private _view: { destroy: () => void } | null = null;
  private _saved: IRenderMime.IRenderer | null = null;
  /** Not empty when there is no view: why not. */
  private _why = '';
  private _still: ReturnType<typeof setTimeout> | undefined;
  private _patience: ReturnType<typeof setTimeout> | undefined;
  private _stopWaiting: () => void = () => undefined;
}

/** The output may come from anybody: whatever is no run's id is none. */
function runIdIn(data: unknown): string {
  const found = (data as { run_id?: unknown } | null | undefined)?.run_id;
  return typeof found === 'string' && found.length <= MAX_ID ? found : '';
}

interface Recording {
  digest: string;
  speed: number;
}

function recordingIn(data: unknown): Recording | null {
  const found = (data ?? {}) as { is_recording?: unknown; timeline?: unknown; speed?: unknown };
  if (found.is_recording !== true) {
    return null;
  }
  const { timeline, speed } = found;
  const digest = typeof timeline === 'string' && DIGEST.test(timeline) ? timeline : '';
  return { digest, speed: typeof speed === 'number' && speed > 0 && speed <= MAX_SPEED ? speed : 1 };
}
