// What a cell shows.  HTML goes into a frame in which no script runs, whoever wrote it.

const ANSI = /\u001b\[[0-9;]*m/g;
const FRAME_STYLE = "body { display: flow-root; margin: 0; font: 14px system-ui }";

export class Output {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.clear();
  }

  clear() {
    this.element.replaceChildren();
    this.places = new Map();
    this.isClearing = false;
  }

  /** Take one message of the kernel. */
  take(kind, content) {
    if (kind === "clear_output") {
      if (content.wait) this.isClearing = true;
      else this.clear();
      return;
    }
    if (kind === "update_display_data") {
      const place = this.places.get(content.transient?.display_id);
      if (place) show(place, content.data);
      return;
    }
    const isShown = kind === "display_data" || kind === "execute_result";
    if (!isShown && kind !== "stream" && kind !== "error") return;
    if (this.isClearing) this.clear();
    if (kind === "stream") this.print(content.text, content.name);
    else if (kind === "error") this.print(`${content.traceback.join("\n")}\n`, "stderr");
    else this.add(content);
  }

  add(content) {
    const place = document.createElement("div");
    this.element.append(place);
    const id = content.transient?.display_id;
    if (id) this.places.set(id, place);
    show(place, content.data);
  }

  print(text, name) {
    let last = this.element.lastElementChild;
    if (!last?.matches(`pre.ddl-${name}`)) {
      last = document.createElement("pre");
      last.className = `ddl-${name}`;
      this.element.append(last);
    }
    last.textContent += text.replace(ANSI, "");
  }
}

function show(place, data) {
  if (data["text/html"]) html(place, text(data["text/html"]));
  else if (data["image/png"]) image(place, `data:image/png;base64,${text(data["image/png"])}`);
  else {
    const pre = document.createElement("pre");
    pre.textContent = text(data["text/plain"] ?? "").replace(ANSI, "");
    place.replaceChildren(pre);
  }
}

function text(value) {
  return Array.isArray(value) ? value.join("") : String(value);
}

function image(place, source) {
  const picture = document.createElement("img");
  picture.src = source;
  place.replaceChildren(picture);
}

function html(place, markup) {
  let frame = place.querySelector("iframe");
  if (!frame) {
    frame = document.createElement("iframe");
    // Of this page's origin, so that its height can be seen; without scripts all the same.
    frame.setAttribute("sandbox", "allow-same-origin");
    place.replaceChildren(frame);
    const style = frame.contentDocument.createElement("style");
    style.textContent = FRAME_STYLE;
    frame.contentDocument.head.append(style);
    const { body } = frame.contentDocument;
    const fit = () => {
      frame.style.height = `${Math.ceil(body.getBoundingClientRect().height)}px`;
    };
    new ResizeObserver(fit).observe(body);
  }
  // A frame inherits neither of them, and the reader may have changed the theme.
  const { color, colorScheme } = getComputedStyle(place);
  frame.contentDocument.documentElement.style.colorScheme = colorScheme;
  frame.contentDocument.body.style.color = color;
  // Redrawn in place: a document that is loaded anew would flicker.
  frame.contentDocument.body.innerHTML = markup;
}
