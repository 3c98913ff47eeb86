// A websocket that comes back by itself. live.js and chat.js are built on it.

import { CLOSE, PROTOCOL, SERVER_MESSAGES } from "./schema.js";

const FIRST_DELAY_MS = 400;
const LONGEST_DELAY_MS = 20000;
const PING_EVERY_MS = 20000;
const PONG_WITHIN_MS = 10000;
const SERVICE_RESTART = 1012;

// What is wrong with a message of the server, or null.
export function problemWith(message) {
  const shape = SERVER_MESSAGES[message?.type];
  if (!shape) return `unknown message type ${message?.type}`;
  for (const name of shape.required) if (!(name in message)) return `${message.type} lacks ${name}`;
  for (const name of Object.keys(message)) {
    if (name !== "type" && !(name in shape.fields)) return `${message.type} has an unknown field ${name}`;
  }
  return null;
}

// States: connecting, open, waiting (retryAt: epoch ms), outdated (reload the page), refused (code), closed.
export class Connection {
  #path;
  #onMessage;
  #listeners = new Set();
  #socket = null;
  #attempts = 0;
  #retryTimer = null;
  #pingTimer = null;
  #pongTimer = null;
  #wanted = false;
  #wake = () => this.#retryNow();
  state = { name: "closed" };
  roundTripMs = null;

  constructor(path, onMessage) {
    this.#path = path;
    this.#onMessage = onMessage;
  }

  // Calls listener(state) now and at each change; returns a function that ends it.
  onState(listener) {
    this.#listeners.add(listener);
    listener(this.state);
    return () => this.#listeners.delete(listener);
  }

  open() {
    if (this.#wanted) return;
    this.#wanted = true;
    window.addEventListener("online", this.#wake);
    document.addEventListener("visibilitychange", this.#wake);
    this.#connect();
  }

  close() {
    this.#wanted = false;
    window.removeEventListener("online", this.#wake);
    document.removeEventListener("visibilitychange", this.#wake);
    clearTimeout(this.#retryTimer);
    this.#socket?.close(1000);
    this.#drop();
    this.#setState({ name: "closed" });
  }

  // Whether the message was handed to an open socket; nothing is kept for later.
  send(message) {
    if (this.state.name !== "open") return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${this.#path}`);
    this.#socket = socket;
    this.#setState({ name: "connecting" });
    socket.onmessage = (event) => this.#socket === socket && this.#receive(JSON.parse(event.data));
    socket.onclose = (event) => this.#socket === socket && this.#lost(event.code);
  }

  #receive(message) {
    const problem = problemWith(message);
    if (problem) {
      console.error(`websocket ${this.#path}: ${problem}`);
      return;
    }
    if (message.type === "hello") {
      this.#hello(message);
    } else if (message.type === "pong") {
      clearTimeout(this.#pongTimer);
      this.roundTripMs = performance.now() - message.at;
      return;
    }
    this.#onMessage(message);
  }

  #hello(message) {
    if (message.protocol !== PROTOCOL) {
      this.close();
      this.#setState({ name: "outdated" });
      return;
    }
    this.#attempts = 0;
    this.#pingTimer = setInterval(() => this.#ping(), PING_EVERY_MS);
    this.#setState({ name: "open" });
  }

  // A connection can be dead without a close frame (sleep, a pulled cable).
  #ping() {
    this.send({ type: "ping", at: performance.now() });
    clearTimeout(this.#pongTimer);
    this.#pongTimer = setTimeout(() => {
      this.#socket?.close();
      this.#lost(1006);
    }, PONG_WITHIN_MS);
  }

  #lost(code) {
    this.#drop();
    if (!this.#wanted) return;
    if (code === CLOSE.signedOut || code === CLOSE.notAllowed) {
      this.close();
      this.#setState({ name: "refused", code });
      return;
    }
    const delay = this.#delay(code);
    this.#setState({ name: "waiting", code, retryAt: Date.now() + delay });
    this.#retryTimer = setTimeout(() => this.#connect(), delay);
  }

  // Exponential with full jitter, so that a thousand browsers do not come back in one moment.
  #delay(code) {
    const grown = FIRST_DELAY_MS * 2 ** Math.min(this.#attempts, 6);
    this.#attempts += 1;
    const limit = code === SERVICE_RESTART ? Math.max(grown, 2000) : grown;
    return FIRST_DELAY_MS / 2 + Math.random() * Math.min(limit, LONGEST_DELAY_MS);
  }

  #retryNow() {
    if (this.state.name !== "waiting" || document.hidden) return;
    clearTimeout(this.#retryTimer);
    this.#connect();
  }

  #drop() {
    clearInterval(this.#pingTimer);
    clearTimeout(this.#pongTimer);
    this.#socket = null;
  }

  #setState(state) {
    this.state = state;
    for (const listener of this.#listeners) listener(state);
  }
}
