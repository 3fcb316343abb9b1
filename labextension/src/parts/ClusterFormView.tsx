/** The form that starts a cluster. */

import * as React from 'react';

import { EMPTY_FORM, readForm } from '../model/clusterForm';
import type { ClusterForm, StartAsk, Wrong } from '../model/clusterForm';

export interface ClusterFormProps {
  /** Names of the clusters that run. */
  taken: readonly string[];
  backends: readonly string[];
  /** Ends when the cluster is there. */
  onStart: (ask: StartAsk, onProgress: (text: string) => void) => Promise<void>;
  onClose: () => void;
}

interface FieldProps {
  name: keyof ClusterForm;
  label: string;
  hint: string;
  form: ClusterForm;
  wrong: Wrong;
  onChange: (name: keyof ClusterForm, text: string) => void;
}

export function ClusterFormView(props: ClusterFormProps): React.ReactElement {
  const [form, setForm] = React.useState(() => ({ ...EMPTY_FORM, name: freeName(props.taken) }));
  const [wrong, setWrong] = React.useState<Wrong>({});
  const [progress, setProgress] = React.useState('');
  const [refusal, setRefusal] = React.useState('');
  const isStarting = progress !== '';
  const onChange = (name: keyof ClusterForm, text: string) => {
    setForm({ ...form, [name]: text });
    setWrong({ ...wrong, [name]: undefined });
  };
  const onSubmit = async (event: React.FormEvent) => {
    event.preventDefault();
    const read = readForm(form, props.taken);
    setRefusal('');
    if ('wrong' in read) {
      setWrong(read.wrong);
      return;
    }
    setProgress('Starting…');
    try {
      await props.onStart(read.ask, setProgress);
      props.onClose();
    } catch (error) {
      setProgress('');
      setRefusal(error instanceof Error ? error.message : String(error));
    }
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      props.onClose();
    }
  };
  const field = { form, wrong, onChange };
  return (
    <form
      className="jp-ddl-form"
      aria-label="Start a cluster"
      onSubmit={event => void onSubmit(event)}
      onKeyDown={onKeyDown}
      noValidate
    >
      <fieldset disabled={isStarting}>
        <Field {...field} name="name" label="Name" hint="" />
        {props.backends.length > 1 && (
          <label className="jp-ddl-field">
            <span>Backend</span>
            <select
              className="jp-mod-styled"
              value={form.backend}
              onChange={event => onChange('backend', event.target.value)}
            >
              {props.backends.map(backend => (
                <option key={backend}>{backend}</option>
              ))}
            </select>
          </label>
        )}
        <Field {...field} name="workers" label="Workers" hint="automatic" />
        <Field {...field} name="cpus" label="CPUs each" hint="" />
        <Field {...field} name="memory" label="Memory each" hint="automatic" />
        <Field {...field} name="idle" label="Idle timeout" hint="30m" />
        <Field {...field} name="age" label="Maximum age" hint="24h" />
      </fieldset>
      <div className="jp-ddl-form-end">
        <button type="submit" className="jp-Button jp-mod-styled jp-mod-accept" disabled={isStarting}>
          Start
        </button>
        <button type="button" className="jp-Button jp-mod-styled jp-mod-reject" onClick={props.onClose}>
          {isStarting ? 'Hide' : 'Cancel'}
        </button>
      </div>
      <div className="jp-ddl-form-progress" role="status">
        {progress}
      </div>
      <div className="jp-ddl-wrong" role="alert">
        {refusal}
      </div>
    </form>
  );
}

function Field(props: FieldProps): React.ReactElement {
  const { name, label, hint, form, wrong, onChange } = props;
  const id = React.useId();
  const message = wrong[name];
  return (
    <label className="jp-ddl-field">
      <span>{label}</span>
      <input
        className="jp-mod-styled"
        name={name}
        value={form[name]}
        placeholder={hint}
        spellCheck={false}
        autoComplete="off"
        autoFocus={name === 'name'}
        aria-invalid={message !== undefined}
        aria-describedby={message === undefined ? undefined : id}
        onChange={event => onChange(name, event.target.value)}
      />
      {message !== undefined && (
        <span className="jp-ddl-wrong" id={id} role="alert">
          {message}
        </span>
      )}
    </label>
  );
}

/** `local`, then `local-2`, … */
function freeName(taken: readonly string[]): string {
  let name = EMPTY_FORM.name;
  for (let number = 2; taken.includes(name); number += 1) {
    name = `${EMPTY_FORM.name}-${number}`;
  }
  return name;
}
