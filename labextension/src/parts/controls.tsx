/** Small things that all lists use. */

import type { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Store } from '../model/store';
import { useKnown } from './hooks';

/** A button that is only an icon; its label is read out and shown as a tooltip. */
export function IconButton(props: {
  icon: LabIcon;
  label: string;
  onClick: () => void;
}): React.ReactElement {
  return (
    <button
      type="button"
      className="jp-Button jp-mod-minimal jp-ddl-iconButton"
      title={props.label}
      aria-label={props.label}
      onClick={props.onClick}
    >
      <props.icon.react tag="span" aria-hidden="true" />
    </button>
  );
}

/** A coloured word; colour alone says nothing. */
export function StateLabel(props: { state: string }): React.ReactElement {
  return (
    <span className="jp-ddl-state" data-state={props.state}>
      {props.state}
    </span>
  );
}

/** A thin bar; `share` is 0 to 1, null while it is not known. */
export function Bar(props: {
  share: number | null;
  label: string;
  state?: string;
}): React.ReactElement {
  const percent = props.share === null ? undefined : Math.round(props.share * 100);
  return (
    <div
      className="jp-ddl-bar"
      role="progressbar"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={percent}
      data-state={props.state}
      data-unknown={percent === undefined || undefined}
    >
      <div style={{ width: `${percent ?? 100}%` }} />
    </div>
  );
}

/** A field that filters a list. */
export function FilterField(props: {
  placeholder: string;
  label: string;
  value: string;
  onChange: (value: string) => void;
}): React.ReactElement {
  return (
    <input
      type="search"
      className="jp-mod-styled jp-ddl-filter"
      placeholder={props.placeholder}
      aria-label={props.label}
      value={props.value}
      onChange={event => props.onChange(event.target.value)}
    />
  );
}

/** What the server can't read now, above what it read last; nothing while all is well. */
export function Trouble(props: { text: string }): React.ReactElement | null {
  return props.text === '' ? null : (
    <div className="jp-ddl-trouble" role="status">
      {props.text}
    </div>
  );
}

/** Says what is wrong with the connection; nothing while all is well. */
export function LiveBanner(props: { store: Store }): React.ReactElement {
  const { state, otherVersion } = useKnown(props.store);
  let text = '';
  if (state === 'connecting') {
    text = 'Connecting…';
  } else if (state === 'reconnecting') {
    text = 'Reconnecting to the server… Runs continue meanwhile.';
  } else if (otherVersion) {
    text = `The server has jupyter_ddl ${otherVersion}: reload this page.`;
  }
  return (
    <div className="jp-ddl-banner" role="status" data-state={state} hidden={!text}>
      {text}
    </div>
  );
}
