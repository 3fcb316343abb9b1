// The view as an anywidget: a model that is there as soon as its comm is, and views of it.

import { framed } from "./columns.js";
import { mount } from "./index.js";

const decoder = new TextDecoder();

function decoded(buffer) {
  try {
    return framed(buffer) ?? JSON.parse(decoder.decode(buffer));
  } catch {
    return null;
  }
}

function channelOf(model) {
  return {
    send: (message) => model.send(message),
    subscribe: (callback) => {
      const listener = (_content, buffers) => {
        for (const buffer of buffers ?? []) {
          const message = decoded(buffer);
          if (message !== null) callback(message);
        }
      };
      model.on("msg:custom", listener);
      return () => model.off("msg:custom", listener);
    },
  };
}

export default {
  initialize({ model }) {
    // Tells the kernel that somebody is there, also when the cell is scrolled out of sight.
    model.send({ kind: "have", seq: 0 });
  },
  render({ model, el }) {
    const view = mount(el, channelOf(model), { runId: model.get("run_id"), isInCell: true });
    return () => view.destroy();
  },
};
