// What the sections below a run share: fields to choose from, and sentences.

import { clean, h, repeat, setText, show } from "./dom.js";
import { count } from "./format.js";

export function select(label) {
  return h("select", { class: "ddl-input", "aria-label": label });
}

export function note() {
  return h("p", { class: "ddl-muted ddl-note", role: "status" });
}

/** Options of a field; what is chosen stays so. */
export function fill(field, names, textOf, first = names[0]) {
  const key = JSON.stringify(names);
  if (field.dataset.key === key) return;
  const chosen = field.dataset.key === undefined ? first : field.value;
  field.dataset.key = key;
  repeat(field, names, () => h("option"), (option, name) => {
    option.value = name;
    setText(option, clean(textOf(name), 60));
  });
  field.value = names.includes(chosen) ? chosen : (first ?? "");
  show(field, names.length > 1);
}

export function sentence(text) {
  return text === "" ? "" : `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** Where rounds of a training went on from a checkpoint. */
export function restartsOf(restarts, of = "") {
  return (restarts ?? [])
    .filter((row) => row.is_over)
    .map((row) => ({ x: row.step ?? 0, text: `${of}round ${row.round + 1} went on from step ${count(row.step ?? 0)}` }));
}
