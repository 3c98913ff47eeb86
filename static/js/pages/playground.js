// The playground: a conversation with streamed answers on the left, charts with the answers marked on the right.
import { ChatClient } from "../realtime/chat.js";
import { copy } from "../pieces/copy.js";
import { grouped, significant } from "../pieces/format.js";
import { lookEverywhere } from "../pieces/live.js";
import { toast } from "../pieces/toast.js";
import { gettext, phrase } from "../pieces/words.js";
import { PromptCount } from "../playground/count.js";
import { editQuestion } from "../playground/editing.js";
import { fieldOf, readParams } from "../playground/params.js";
import { Turns } from "../playground/turns.js";
import { Beside } from "../playground/beside.js";
import { startDivider } from "./divider.js";

const state = JSON.parse(document.getElementById("playground").textContent);
const root = document.querySelector("[data-playground]");
const form = root.querySelector("[data-composer]");
const prompt = root.querySelector("[data-prompt]");
const send = root.querySelector("[data-send]");
const stop = root.querySelector("[data-stop]");
const status = root.querySelector("[data-status]");
const note = root.querySelector("[data-composer-note]");
const rendered = root.querySelector("[data-rendered]");
const renderedFold = root.querySelector("[data-rendered-fold]");
const drawer = document.getElementById("drawer");
const turns = new Turns(root.querySelector("[data-turns]"), document.querySelector("[data-turn-template]"));
const beside = new Beside(root, state.turns, (uid) => turns.text(uid));
const mine = !prompt.disabled;
let running = null;
// What was sent and has not begun: its text leaves the composer when it has.
let sent = null;
let early = false;
let connected = false;

function serves() {
  return document.getElementById("talk-head").dataset.serves === "yes";
}

function refresh() {
  const ready = mine && serves() && connected && !running && !sent;
  send.hidden = Boolean(running);
  stop.hidden = !running;
  send.disabled = !ready;
  root.toggleAttribute("data-ready", ready);
  if (mine) note.hidden = serves();
}

function system() {
  return root.querySelector("[data-system]").value;
}

function told(name, detail) {
  document.dispatchEvent(new CustomEvent(name, { detail }));
}

const chat = new ChatClient(state.conversation, {
  started(turn) {
    running = turn.uid;
    // Begun in another window on a branch that is not shown here.
    if (!turns.start(turn)) chat.show(turn.uid);
    if (sent?.clears) {
      prompt.value = "";
      grow();
    }
    sent = null;
    beside.started(turn);
    told("turn:started", turn);
    status.textContent = gettext("Waiting for the first token");
    refresh();
  },
  delta(uid, text, { tokens, at, marks, firstMark }) {
    const ttft = beside.delta(uid, { at, marks });
    if (ttft !== null) {
      turns.first(uid, ttft);
      status.textContent = gettext("Answering");
    }
    turns.add(uid, text, tokens, at - (beside.firstAt(uid) ?? at));
    told("turn:delta", { uid, tokens, at, marks, firstMark });
  },
  finished(turn) {
    if (running === turn.uid) running = null;
    turns.finish(turn);
    beside.finished(turn);
    told("turn:finished", turn);
    status.textContent = endOf(turn);
    refresh();
    count.look();
    // The first question has named the conversation.
    lookEverywhere();
  },
  branch(shown) {
    turns.show(shown);
    beside.shown(shown);
    count.look({ now: true });
  },
  counted(message) {
    count.told(message, Number(root.querySelector('[data-param="max_tokens"]')?.value) || null);
    if (rendered && (message.text !== null || message.problem)) rendered.textContent = message.problem || message.text;
  },
  problem(error) {
    sent = null;
    if (error.turn && error.turn === running && error.code === "unknown_turn") running = null;
    toast("bad", error.message, error.remedy);
    status.textContent = error.message;
    const field = error.field && fieldOf(root, error.field);
    if (field) {
      open(true);
      field.focus();
    }
    refresh();
  },
  state(now) {
    connected = now.name === "open";
    if (now.name === "waiting") status.textContent = gettext("The connection is lost; it is tried again.");
    else if (now.name === "refused") status.textContent = gettext("You are signed out: reload the page.");
    else if (now.name === "outdated") status.textContent = gettext("This page comes from an older version: reload it.");
    else if (now.name === "open" && !running) status.textContent = "";
    refresh();
    if (connected && early) form.requestSubmit();
    early = early && !connected;
    if (connected) {
      count.forget();
      count.look({ now: true });
    }
  },
});

const count = new PromptCount(root.querySelector("[data-count]"), {
  ask: (question) => mine && serves() && chat.count(question),
  question: () => ({
    prompt: prompt.value,
    system_prompt: system(),
    after: turns.last,
    with_text: Boolean(renderedFold?.open),
  }),
});

function endOf(turn) {
  if (turn.state !== "done") return turn.sentence || gettext("Stopped");
  const { tokens, tokens_per_second: rate } = turn.metrics;
  return phrase("Done: %(tokens)s tokens, %(rate)s tokens/s", { tokens: grouped(tokens), rate: significant(rate) });
}

function ask(command, { clears = false } = {}) {
  if (running || sent) return false;
  if (!chat.ask({ ...command, system_prompt: system(), params: readParams(root) })) {
    toast("bad", gettext("The connection is lost."), gettext("Your text is kept; send it when the connection is back."));
    return false;
  }
  sent = { clears };
  status.textContent = gettext("Sent");
  refresh();
  return true;
}

function grow() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

function open(on) {
  drawer.hidden = !on;
  root.querySelector("[data-drawer-toggle]").setAttribute("aria-expanded", String(on));
  if (on) drawer.querySelector("textarea").focus();
}

async function copied(text) {
  const done = await copy(text);
  toast(done ? "ok" : "bad", done ? gettext("Copied.") : gettext("The browser does not allow copying here."));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!prompt.value.trim()) return;
  // Pressed before the socket is open: it goes out as soon as it is.
  early = send.disabled && mine && serves() && !connected;
  if (early) status.textContent = gettext("Connecting");
  if (!send.disabled) ask({ prompt: prompt.value, after: turns.last }, { clears: true });
});
prompt.addEventListener("input", () => {
  grow();
  count.look();
});
drawer.addEventListener("input", () => count.look());
renderedFold?.addEventListener("toggle", () => count.look({ now: true }));
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
stop.addEventListener("click", () => {
  if (running && chat.stop(running)) {
    status.textContent = gettext("Stopping");
    told("turn:stopping", { uid: running, at: Date.now() / 1000 });
  }
  prompt.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open], :popover-open")) return;
  if (!drawer.hidden) open(false);
  else if (running) stop.click();
});

// What the buttons of a turn do.
const ACTIONS = {
  "[data-regenerate]": (uid) => ask({ regenerate: uid }),
  "[data-copy-answer]": (uid) => copied(turns.text(uid)),
  "[data-copy-code]": (_uid, button) => copied(button.closest(".code-block").querySelector("code").textContent),
  "[data-as-text]": (uid, button) => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    turns.asText(uid, on);
  },
  "[data-edit]": (_uid, button) => {
    const article = button.closest("[data-turn]");
    editQuestion(article, (text) => ask({ edit: article.dataset.turn, prompt: text }));
  },
  "[data-branch]": (_uid, button) => {
    const box = button.closest("[data-branches]");
    const to = button.dataset.branch === "1" ? box.dataset.next : box.dataset.before;
    if (to && !running) chat.show(to);
  },
  "[data-from-here]": (uid) => {
    if (running) return;
    chat.show(uid, { here: true });
    prompt.focus();
  },
};
root.addEventListener("click", (event) => {
  const article = event.target.closest("[data-turn]");
  if (!article) return;
  for (const [selector, act] of Object.entries(ACTIONS)) {
    const button = event.target.closest(selector);
    if (button) act(article.dataset.turn, button);
  }
});
root.addEventListener("click", (event) => {
  if (event.target.closest("[data-drawer-toggle]")) open(drawer.hidden);
  if (event.target.closest("[data-drawer-close]")) {
    open(false);
    root.querySelector("[data-drawer-toggle]").focus();
  }
});
document.addEventListener("live:drawn", () => {
  const title = document.querySelector("#talk-head h1").textContent;
  document.querySelector(".crumbs [aria-current]").textContent = title;
  document.title = `${title} · Inflight`;
  refresh();
});

turns.adopt(state.turns);
for (const turn of state.turns) {
  if (turn.state === "streaming") {
    running = turn.uid;
    beside.again(turn.uid);
    chat.resume(turn.uid);
  }
}
turns.toEnd();
startDivider(root.querySelector("[data-divider]"));
refresh();
