// The compare page: asks what is not answered yet, shows the answers as they come, and lets the server draw what they
// say about each other. Each side answers in a conversation of its own, over the playground's socket.
import { ChatClient } from "../realtime/chat.js";
import { grouped, significant } from "../pieces/format.js";
import { morph } from "../pieces/morph.js";
import { toast } from "../pieces/toast.js";
import { gettext, phrase } from "../pieces/words.js";

const region = document.querySelector("[data-compared]");
const run = document.querySelector("[data-run]");
const stop = document.querySelector("[data-stop]");
const repeat = document.querySelector("[data-repeat]");
const status = document.querySelector("[data-status]");

let state = read();
let running = null;

function read() {
  return JSON.parse(document.getElementById("comparison").textContent);
}

// A turn that did not come to its end is made anew in its place.
function commandOf(job) {
  const common = { system_prompt: state.system_prompt, params: state.params };
  return job.turn ? { ...common, regenerate: job.turn } : { ...common, prompt: job.prompt };
}

function byQuestion(work) {
  const groups = new Map();
  for (const job of work) groups.set(job.question, [...(groups.get(job.question) ?? []), job]);
  return [...groups.values()];
}

// One answer: a socket of its own from the question to the end. `done` is settled with the ended turn, or null where it
// was refused.
class Answer {
  #chat;
  #cell;
  #box;
  #pending = "";
  #frame = 0;
  #tokens = 0;
  #first = 0;
  #at = 0;
  #turn;

  constructor(job, { resume }) {
    this.job = job;
    this.#turn = resume ? job.turn : null;
    this.#cell = region.querySelector(`[data-question="${job.question}"] [data-side="${job.side}"]`);
    this.#box = this.#cell.querySelector("[data-answer]");
    this.done = new Promise((resolve) => { this.#settle = resolve; });
    let asked = false;
    this.#chat = new ChatClient(job.conversation, {
      state: (now) => {
        if (now.name === "refused" || now.name === "outdated") this.#end(null);
        if (now.name !== "open" || asked) return;
        asked = true;
        this.#begin();
        if (resume) this.#chat.resume(job.turn, 0);
        else this.#chat.ask(commandOf(job));
      },
      started: (turn) => { this.#turn = turn.uid; },
      delta: (uid, text, { tokens, at }) => { if (uid === this.#turn) this.#add(text, tokens, at); },
      finished: (turn) => { if (turn.uid === this.#turn) this.#end(turn); },
      problem: (error) => {
        toast("bad", error.message, error.remedy);
        this.#end(null);
      },
    });
  }

  #settle;

  stop() {
    if (this.#turn) this.#chat.stop(this.#turn);
    else this.#end(null);
  }

  #begin() {
    this.#cell.dataset.state = "streaming";
    this.#box.textContent = "";
    this.#cell.querySelector("[data-figures]").textContent = gettext("Waiting for the first token");
  }

  #add(text, tokens, at) {
    this.#pending += text;
    this.#tokens = tokens;
    this.#first ||= at;
    this.#at = at;
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    if (this.#pending) this.#box.append(this.#pending);
    this.#pending = "";
    this.#box.scrollTop = this.#box.scrollHeight;
    const seconds = this.#at - this.#first;
    const parts = [phrase("%(count)s tokens", { count: grouped(this.#tokens) })];
    if (this.#tokens > 1 && seconds > 0.2) parts.unshift(`${significant((this.#tokens - 1) / seconds)} ${gettext("tokens/s")}`);
    this.#cell.querySelector("[data-figures]").textContent = parts.join(", ");
  }

  #end(turn) {
    cancelAnimationFrame(this.#frame);
    if (turn) this.#draw();
    this.#cell.dataset.state = turn?.state ?? "";
    this.#chat.close();
    this.#settle(turn);
  }
}

// Works off what is left, question by question; the sides at once or one after the other.
class Run {
  #answers = new Set();
  stopped = false;

  async go(work, { resume = false } = {}) {
    if (resume) {
      await Promise.all(work.map((job) => this.#ask(job, true)));
      return;
    }
    for (const group of state.mode === "together" ? byQuestion(work) : work.map((job) => [job])) {
      if (this.stopped) break;
      status.textContent = phrase("Question %(n)s", { n: group[0].question + 1 });
      const ended = await Promise.all(group.map((job) => this.#ask(job, false)));
      await refresh();
      // What is refused once is refused again: the person decides.
      if (ended.some((turn) => turn === null)) break;
    }
  }

  stop() {
    this.stopped = true;
    for (const answer of this.#answers) answer.stop();
  }

  async #ask(job, resume) {
    const answer = new Answer(job, { resume });
    this.#answers.add(answer);
    const turn = await answer.done;
    this.#answers.delete(answer);
    return turn;
  }
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { "X-Part": "main" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("compared");
  if (!fresh) return;
  // Answers that still come are ahead of what the server has.
  for (const cell of region.querySelectorAll('[data-state="streaming"]')) {
    const place = `[data-question="${cell.closest("[data-question]").dataset.question}"] [data-side="${cell.dataset.side}"]`;
    fresh.querySelector(place)?.replaceWith(cell.cloneNode(true));
  }
  morph(region, fresh);
  state = read();
}

function show() {
  if (!run) return;
  const left = state.work.length;
  run.hidden = Boolean(running) || !left;
  run.querySelector("[data-word]").textContent = state.work.some((job) => job.turn) ? gettext("Go on") : gettext("Run");
  stop.hidden = !running;
  repeat.hidden = Boolean(running) || Boolean(left);
}

async function start(work, options) {
  running = new Run();
  show();
  try {
    await running.go(work, options);
  } finally {
    status.textContent = running.stopped ? gettext("Stopped") : "";
    running = null;
    await refresh();
    show();
  }
}

run?.addEventListener("click", () => start(state.work));
stop?.addEventListener("click", () => {
  status.textContent = gettext("Stopping");
  running?.stop();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !document.querySelector("dialog[open], :popover-open")) stop.click();
});

if (state.mine) {
  const live = state.work.filter((job) => job.running);
  if (live.length) start(live, { resume: true });
  else if (state.work.length && !state.work.some((job) => job.turn) && new URLSearchParams(location.search).has("run")) start(state.work);
}
show();
