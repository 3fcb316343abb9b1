/** The form that starts a cluster. */

import * as React from 'react';

import { EMPTY_FORM, formOf, readForm } from '../model/clusterForm';
import type { ClusterForm, StartAsk, Wrong } from '../model/clusterForm';
import type { FormField, FormOfBackend } from '../protocol';

export interface ClusterFormProps {
  /** Names of the clusters that run. */
  taken: readonly string[];
  backends: readonly FormOfBackend[];
  /** Ends when the cluster is there. */
  onStart: (ask: StartAsk, onProgress: (text: string) => void) => Promise<void>;
  onClose: () => void;
}

type Plain = Exclude<keyof ClusterForm, 'own'>;

interface FieldProps {
  name: Plain;
  label: string;
  hint: string;
  form: ClusterForm;
  wrong: Wrong;
  onChange: (name: Plain, text: string) => void;
}

export function ClusterFormView(props: ClusterFormProps): React.ReactElement {
  const [form, setForm] = React.useState(() => ({ ...EMPTY_FORM, name: freeName(props.taken) }));
  const [wrong, setWrong] = React.useState<Wrong>({});
  const [progress, setProgress] = React.useState('');
  const [refusal, setRefusal] = React.useState('');
  const isStarting = progress !== '';
  const backend = formOf(props.backends, form.backend);
  const onChange = (name: Plain, text: string) => {
    // A name that nobody has typed follows the backend.
    const isOwn = name === 'backend' && form.name === freeName(props.taken, form.backend);
    setForm({
      ...form,
      [name]: text,
      ...(isOwn ? { name: freeName(props.taken, text) } : {})
    });
    setWrong({ ...wrong, [name]: undefined });
  };
  const onSubmit = async (event: React.FormEvent) => {
    event.preventDefault();
    const read = readForm(form, props.taken, backend);
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
              {props.backends.map(({ name, missing }) => (
                <option key={name} value={name}>
                  {missing ? `${name} (unavailable)` : name}
                </option>
              ))}
            </select>
          </label>
        )}
        <div className="jp-ddl-form-text">{backend.purpose}</div>
        {backend.missing && (
          <div className="jp-ddl-wrong jp-ddl-form-text" role="note">
            Not available here: {backend.missing}
          </div>
        )}
        {backend.fields.map(each => (
          <OwnField
            key={`${backend.name} ${each.flag}`}
            field={each}
            value={form.own[each.flag] ?? ''}
            onChange={text => setForm({ ...form, own: { ...form.own, [each.flag]: text } })}
          />
        ))}
        {backend.has_size && <Field {...field} name="workers" label="Workers" hint="automatic" />}
        <Field {...field} name="cpus" label="CPUs each" hint="" />
        <Field {...field} name="memory" label="Memory each" hint="automatic" />
        <Field {...field} name="idle" label="Idle timeout" hint="30m" />
        <Field {...field} name="age" label="Maximum age" hint="24h" />
      </fieldset>
      <div className="jp-ddl-form-end">
        <button
          type="submit"
          className="jp-Button jp-mod-styled jp-mod-accept"
          disabled={isStarting || backend.missing !== ''}
        >
          {backend.has_size ? 'Start' : 'Connect'}
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

/** An option that only this backend has, as its grammar declares it. */
function OwnField(props: {
  field: FormField;
  value: string;
  onChange: (text: string) => void;
}): React.ReactElement {
  const { flag, help, metavar, choices, is_list } = props.field;
  const common = {
    name: flag,
    title: help,
    'aria-label': `${labelOf(flag)}: ${help}`
  };
  const onTyped = (event: { target: { value: string } }) => props.onChange(event.target.value);
  if (metavar === '') {
    return (
      <label className="jp-ddl-field jp-ddl-switch" title={help}>
        <span>{labelOf(flag)}</span>
        <input
          {...common}
          type="checkbox"
          checked={props.value !== ''}
          onChange={event => props.onChange(event.target.checked ? 'on' : '')}
        />
      </label>
    );
  }
  return (
    <label className="jp-ddl-field" title={help}>
      <span>{labelOf(flag)}</span>
      {choices.length > 0 && !is_list ? (
        <select {...common} className="jp-mod-styled" value={props.value} onChange={onTyped}>
          <option value="">automatic</option>
          {choices.map(each => (
            <option key={each}>{each}</option>
          ))}
        </select>
      ) : is_list ? (
        <textarea
          {...common}
          className="jp-mod-styled"
          rows={1}
          placeholder={`${metavar}, one a line`}
          value={props.value}
          spellCheck={false}
          onChange={onTyped}
        />
      ) : (
        <input
          {...common}
          className="jp-mod-styled"
          placeholder={metavar}
          value={props.value}
          spellCheck={false}
          autoComplete="off"
          onChange={onTyped}
        />
      )}
    </label>
  );
}

/** `--node-selector` → `Node selector`. */
function labelOf(flag: string): string {
  const words = flag.replace(/^-+/, '').replace(/-/g, ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** `local`, then `local-2`, … */
function freeName(taken: readonly string[], base = EMPTY_FORM.name): string {
  let name = base;
  for (let number = 2; taken.includes(name); number += 1) {
    name = `${base}-${number}`;
  }
  return name;
}
