// One kernel of a Jupyter server, over the server's REST interface and its websocket.

const WAIT_MS = 30_000;

/** @typedef {{ baseUrl: string, token: string }} Server */

/** A kernel that this page has started; `close` ends it. */
export class Kernel {
  /**
   * Start a kernel and connect to it.
   * @param {Server} server
   * @returns {Promise<Kernel>}
   */
  static async start(server) {
    const base = server.baseUrl.endsWith("/") ? server.baseUrl : `${server.baseUrl}/`;
    const reply = await ask({ ...server, baseUrl: base }, "api/kernels", "POST", { name: "python3" });
    const kernel = new Kernel({ ...server, baseUrl: base }, reply.id);
    await kernel.connect();
    return kernel;
  }

  constructor(server, id) {
    this.server = server;
    this.id = id;
    this.session = crypto.randomUUID();
    /** What listens to the messages of each request. */
    this.requests = new Map();
    this.onLost = () => {};
  }

  connect() {
    const { baseUrl, token } = this.server;
    const query = new URLSearchParams({ session_id: this.session, token });
    const address = `${baseUrl.replace(/^http/, "ws")}api/kernels/${this.id}/channels?${query}`;
    this.socket = new WebSocket(address);
    this.socket.addEventListener("message", (event) => this.take(event.data));
    this.socket.addEventListener("close", () => this.lose());
    return within(WAIT_MS, "the kernel's websocket", (resolve, reject) => {
      this.socket.addEventListener("open", resolve);
      this.socket.addEventListener("error", () => reject(new Error("the kernel can't be reached")));
    });
  }

  /**
   * Execute code.
   * @param {string} code
   * @param {(kind: string, content: any) => void} onOutput
   * @returns {Promise<string>} the reply's status: ok, error or aborted
   */
  execute(code, onOutput) {
    const id = crypto.randomUUID();
    const header = {
      msg_id: id, msg_type: "execute_request", username: "", session: this.session,
      date: new Date().toISOString(), version: "5.3",
    };
    // Nobody answers questions here; a view that is redrawn as HTML is what this page can show.
    const content = {
      code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false,
      stop_on_error: true,
    };
    return new Promise((resolve, reject) => {
      this.requests.set(id, { onOutput, resolve, reject, status: null, isIdle: false });
      this.socket.send(JSON.stringify({
        header, parent_header: {}, metadata: {}, content, channel: "shell", buffers: [],
      }));
    });
  }

  interrupt() {
    return ask(this.server, `api/kernels/${this.id}/interrupt`, "POST");
  }

  close() {
    this.onLost = () => {};
    this.socket.close();
    return ask(this.server, `api/kernels/${this.id}`, "DELETE", undefined, true);
  }

  take(data) {
    if (typeof data !== "string") return; // messages with buffers belong to widgets
    const message = JSON.parse(data);
    const request = this.requests.get(message.parent_header?.msg_id);
    if (!request) return;
    const kind = message.header.msg_type;
    if (kind === "execute_reply") request.status = message.content.status;
    else if (kind === "status") request.isIdle = message.content.execution_state === "idle";
    else request.onOutput(kind, message.content);
    // The reply and the last output come over different sockets, in any order.
    if (request.status !== null && request.isIdle) {
      this.requests.delete(message.parent_header.msg_id);
      request.resolve(request.status);
    }
  }

  lose() {
    for (const request of this.requests.values()) request.reject(new Error("the kernel is gone"));
    this.requests.clear();
    this.onLost();
  }
}

async function ask(server, path, method, body, keepalive = false) {
  const reply = await fetch(server.baseUrl + path, {
    method,
    keepalive,
    headers: { Authorization: `token ${server.token}`, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(WAIT_MS),
  });
  if (!reply.ok) throw new Error(`${new URL(server.baseUrl).host} answers ${reply.status} to ${path}`);
  return reply.status === 204 ? null : reply.json();
}

/** A promise with a deadline. */
export function within(limitMs, what, begin) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${what} did not come in time`)), limitMs);
    const ended = (finish) => (value) => {
      clearTimeout(timer);
      finish(value);
    };
    begin(ended(resolve), ended(reject));
  });
}
