// The playground: streamed answers on the left, charts with the answers marked on the right.
import { ChatClient } from "../realtime/chat.js";
import { LiveChart } from "../pieces/charts.js";
import { copy } from "../pieces/copy.js";
import { grouped, significant } from "../pieces/format.js";
import { lookEverywhere } from "../pieces/live.js";
import { toast } from "../pieces/toast.js";
import { gettext, phrase } from "../pieces/words.js";
import { startDivider } from "./divider.js";
import { Turns } from "./turns.js";

const state = JSON.parse(document.getElementById("playground").textContent);
const root = document.querySelector("[data-playground]");
const form = root.querySelector("[data-composer]");
const prompt = root.querySelector("[data-prompt]");
const send = root.querySelector("[data-send]");
const stop = root.querySelector("[data-stop]");
const status = root.querySelector("[data-status]");
const note = root.querySelector("[data-composer-note]");
const drawer = document.getElementById("drawer");
const chart = new LiveChart(root.querySelector("[data-chart]"));
const turns = new Turns(root.querySelector("[data-turns]"), document.querySelector("[data-turn-template]"));
const bands = new Map();
const mine = !prompt.disabled;
let running = null;
let sent = false;
let early = false;
let connected = false;

function mark() {
  chart.setBands([...bands.values()]);
}

function band(turn) {
  bands.set(turn.uid, { start: turn.started_at, first: turn.first_token_at, end: turn.finished_at });
  mark();
}

function serves() {
  return document.getElementById("talk-head").dataset.serves === "yes";
}

function refresh() {
  const ready = mine && serves() && connected && !running && !sent;
  send.hidden = Boolean(running);
  stop.hidden = !running;
  send.disabled = !ready;
  if (mine) note.hidden = serves();
}

function params() {
  const found = {};
  for (const input of root.querySelectorAll("[data-param]")) {
    if (input.value.trim() !== "") found[input.dataset.param] = Number(input.value);
  }
  for (const choice of root.querySelectorAll("[data-param-choice]")) {
    if (choice.value) found[choice.dataset.paramChoice] = choice.value;
  }
  for (const area of root.querySelectorAll("[data-param-words]")) {
    const words = area.value.split("\n").filter((word) => word !== "");
    if (words.length) found[area.dataset.paramWords] = words;
  }
  return found;
}

function system() {
  return root.querySelector("[data-system]").value;
}

const chat = new ChatClient(state.conversation, {
  started(turn) {
    sent = false;
    running = turn.uid;
    if (turns.start(turn)) {
      prompt.value = "";
      grow();
    }
    band(turn);
    status.textContent = gettext("Waiting for the first token");
    refresh();
  },
  delta(uid, text, { tokens, at }) {
    const mark_ = bands.get(uid);
    if (mark_ && !mark_.first) {
      mark_.first = at;
      mark();
      turns.first(uid, (at - mark_.start) * 1000);
      status.textContent = gettext("Answering");
    }
    turns.add(uid, text, tokens, mark_ ? at - mark_.first : 0);
  },
  finished(turn) {
    if (running === turn.uid) running = null;
    turns.finish(turn);
    band(turn);
    status.textContent = endOf(turn);
    refresh();
    // The first question has named the conversation.
    lookEverywhere();
  },
  problem(error) {
    sent = false;
    if (error.turn && error.turn === running && error.code === "unknown_turn") running = null;
    toast("bad", error.message, error.remedy);
    status.textContent = error.message;
    const field = error.field && root.querySelector(`[data-param="${CSS.escape(error.field.split(".").pop())}"]`);
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
  },
});

function endOf(turn) {
  if (turn.state !== "done") return turn.sentence || gettext("Stopped");
  const { tokens, tokens_per_second: rate } = turn.metrics;
  return phrase("Done: %(tokens)s tokens, %(rate)s tokens/s", { tokens: grouped(tokens), rate: significant(rate) });
}

function ask(command) {
  if (!chat.ask({ ...command, system_prompt: system(), params: params() })) {
    toast("bad", gettext("The connection is lost."), gettext("Your text is kept; send it when the connection is back."));
    return;
  }
  sent = true;
  status.textContent = gettext("Sent");
  refresh();
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

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!prompt.value.trim()) return;
  // Pressed before the socket is open: it goes out as soon as it is.
  early = send.disabled && mine && serves() && !connected;
  if (early) status.textContent = gettext("Connecting");
  if (!send.disabled) ask({ prompt: prompt.value });
});
prompt.addEventListener("input", grow);
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
stop.addEventListener("click", () => {
  if (running && chat.stop(running)) status.textContent = gettext("Stopping");
  prompt.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open], :popover-open")) return;
  if (!drawer.hidden) open(false);
  else if (running) stop.click();
});
root.addEventListener("click", async (event) => {
  const article = event.target.closest("[data-turn]");
  if (event.target.closest("[data-regenerate]") && !running) ask({ regenerate: article.dataset.turn });
  if (event.target.closest("[data-copy-answer]")) {
    const done = await copy(article.querySelector("[data-answer]").textContent);
    toast(done ? "ok" : "bad", done ? gettext("Copied.") : gettext("The browser does not allow copying here."));
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

for (const turn of state.turns) {
  band(turn);
  if (turn.state === "streaming") {
    running = turn.uid;
    turns.again(turn.uid);
    bands.get(turn.uid).first = null;
    chat.resume(turn.uid, 0);
  }
}
turns.toEnd();
startDivider(root.querySelector("[data-divider]"));
refresh();
