// The knob of background load: synthetic users beside one's own chat. The page says every few seconds that it is still
// open; without that the load ends by itself.
import { toast } from "../pieces/toast.js";
import { gettext, phrase } from "../pieces/words.js";
import { clock } from "../pieces/format.js";

const KEEP_MS = 5000;
const SETTLE_MS = 400;
const FOLLOW_MS = 1500;

export class BackgroundKnob {
  #timer = 0;
  #keeping = 0;
  #users = 0;
  // Only what this page asked for is ended when it is left.
  #mine = false;

  constructor(node) {
    this.node = node;
    this.url = node.dataset.url;
    this.input = node.querySelector("input");
    this.output = node.querySelector("output");
    this.words = node.querySelector("[data-busy-state]");
    this.input.addEventListener("input", () => {
      this.output.textContent = this.input.value;
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#set(Number(this.input.value)), SETTLE_MS);
    });
    addEventListener("pagehide", () => { if (this.#mine) this.#send("PUT", "", { users: 0 }, true); });
    this.#follow();
  }

  async #set(users) {
    this.#mine = users > 0;
    this.#take(await this.#send("PUT", "", { users }));
  }

  async #follow() {
    this.#take(await this.#send("GET", ""));
  }

  #send(method, path, body = null, last = false) {
    const { "X-CSRFToken": token } = JSON.parse(document.body.getAttribute("hx-headers"));
    const options = { method, headers: { "X-CSRFToken": token }, keepalive: last };
    if (body) {
      options.body = JSON.stringify(body);
      options.headers["Content-Type"] = "application/json";
    }
    return fetch(this.url + path, options).then(async (answer) => {
      const told = await answer.json();
      if (answer.ok) return told;
      const problem = told.error ?? told;
      toast("bad", problem.message, problem.remedy);
      return null;
    }).catch(() => null);
  }

  #take(told) {
    if (!told) {
      // Refused, or the server is away: what was asked for is not there.
      this.#mine = this.#mine && this.#users > 0;
      this.input.value = this.#users;
      this.output.textContent = this.#users;
      return;
    }
    this.#users = told.users;
    if (document.activeElement !== this.input || !this.#timer) this.input.value = told.users;
    this.output.textContent = this.input.value;
    this.words.textContent = sentence(told);
    this.node.dataset.state = told.state ?? "";
    clearTimeout(this.#keeping);
    if (!told.users) {
      this.#mine = false;
      return;
    }
    const wait = told.state === "queued" ? FOLLOW_MS : KEEP_MS;
    this.#keeping = setTimeout(async () => {
      const answer = await (this.#mine ? this.#send("POST", "/keep") : this.#send("GET", ""));
      this.#timer = 0;
      this.#take(answer);
    }, wait);
  }
}

function sentence(told) {
  if (!told.users) return gettext("Nobody else asks by this knob.");
  if (told.state === "queued") return told.sentence || gettext("They begin in a moment.");
  const count = phrase(told.users === 1 ? "%(n)s synthetic user asks" : "%(n)s synthetic users ask", { n: told.users });
  return `${count}; ${phrase("ends by itself at %(time)s, or when you leave this page", { time: clock(told.ends_at) })}.`;
}
