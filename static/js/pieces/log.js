// Log view: only the rows in sight are in the document. Follows the end until the person scrolls away.
import { live } from "../realtime/socket.js";
import { grouped } from "./format.js";
import { copy } from "./copy.js";
import { toast } from "./toast.js";
import { gettext, phrase } from "./words.js";

const ROW = 18;
const SPARE = 20;
const MOST_LINES = 200000;
const ANSI = /\u001b\[[0-9;?]*[A-Za-z]/g;
// Loggers that begin a line with their level: Triton (E1130 10:11:12, or 2026-11-30T10:11:12Z E) and llama.cpp
// (0.01.272.912 E). Their letter counts; other lines are judged by the words that loggers write.
const LETTER = /^(?:[\d.:TZ-]+ )?([IWEFD])(?:\d{4})? /;
const LETTERS = { E: "error", F: "error", W: "warning", D: "debug", I: "info" };
const ERROR = /\b(\w*error|\w*exception|fatal|critical|traceback|failed)\b/i;
const WARNING = /\bwarn(ing)?\b/i;
const DEBUG = /\bDEBUG\b|^debug\b|\blevel=debug\b/;
const RANK = { error: 2, warning: 1, info: 0, debug: 0 };

export function levelOf(line) {
  const letter = LETTER.exec(line);
  if (letter) return LETTERS[letter[1]];
  if (ERROR.test(line)) return "error";
  if (WARNING.test(line)) return "warning";
  return DEBUG.test(line) ? "debug" : "info";
}

export class LogView {
  #lines = [];
  #levels = [];
  #open = "";
  #shown = null;
  #before = 0;
  #current = -1;
  #marked = -1;
  #matches = [];
  #frame = 0;

  constructor(root) {
    this.root = root;
    this.view = root.querySelector("[data-log-view]");
    this.space = root.querySelector("[data-log-space]");
    this.search = root.querySelector("[data-log-search]");
    this.level = root.querySelector("[data-log-level]");
    this.tail = root.querySelector("[data-log-tail]");
    this.note = root.querySelector("[data-log-note]");
    this.#listen();
    this.#start();
  }

  async #start() {
    let offset = 0;
    try {
      const answer = await fetch(this.root.dataset.url);
      if (answer.ok) {
        offset = Number(answer.headers.get("X-Log-End") ?? 0);
        this.#before = Number(answer.headers.get("X-Log-Lines-Before") ?? 0);
        this.#append(await answer.text());
      }
    } catch {
      this.note.textContent = gettext("The log cannot be read now.");
    }
    this.#takeOver();
    const linked = /^#log-(\d{1,9})$/.exec(location.hash);
    if (linked) this.goTo(Number(linked[1]));
    if (!("liveLog" in this.root.dataset)) return;
    live.subscribe(this.root.dataset.topic, {
      log: ({ text, reset, skipped }) => {
        if (reset) this.#clear();
        if (skipped) this.#append(`\n${phrase("(%(bytes)s bytes passed over)", { bytes: grouped(skipped) })}\n`);
        this.#append(text);
        this.#draw();
      },
    }, { offset });
  }

  #takeOver() {
    if (!this.rows) {
      this.rows = document.createElement("div");
      this.rows.className = "log-rows";
    }
    if (this.#lines.length || this.#open) this.space.replaceChildren(this.rows);
    this.#draw();
  }

  #clear() {
    this.#lines = [];
    this.#levels = [];
    this.#open = "";
    this.#before = 0;
    this.#filter();
  }

  #append(text) {
    const pieces = (this.#open + text.replace(ANSI, "")).split("\n");
    this.#open = pieces.pop();
    for (const piece of pieces) {
      const line = piece.slice(piece.lastIndexOf("\r", piece.length - 2) + 1).trimEnd();
      this.#lines.push(line);
      this.#levels.push(levelOf(line));
    }
    const over = this.#lines.length - MOST_LINES;
    if (over > 0) {
      this.#lines.splice(0, over);
      this.#levels.splice(0, over);
      this.#before += over;
    }
    if (this.rows && !this.rows.isConnected) this.space.replaceChildren(this.rows);
    this.#filter();
  }

  // Indices of the lines that the chosen level lets through, and those that the search finds.
  #filter() {
    const least = RANK[this.level.value] ?? 0;
    const wanted = this.search.value.trim().toLowerCase();
    this.#shown = least ? [] : null;
    if (least) this.#levels.forEach((level, index) => { if (RANK[level] >= least) this.#shown.push(index); });
    this.#matches = [];
    if (wanted) {
      for (let at = 0; at < this.#count(); at += 1) {
        if (this.#line(at).toLowerCase().includes(wanted)) this.#matches.push(at);
      }
    }
    if (this.#current >= this.#matches.length) this.#current = -1;
  }

  #count() {
    return this.#shown ? this.#shown.length : this.#lines.length;
  }

  #line(at) {
    return this.#lines[this.#shown ? this.#shown[at] : at];
  }

  #draw() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  #paint() {
    if (!this.rows?.isConnected) return;
    const count = this.#count();
    this.space.style.height = `${count * ROW}px`;
    if (this.#follows()) this.view.scrollTop = count * ROW;
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW) - SPARE);
    const last = Math.min(count, first + Math.ceil(this.view.clientHeight / ROW) + 2 * SPARE);
    const matching = new Set(this.#matches);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.#row(at, matching));
    this.rows.style.top = `${first * ROW}px`;
    this.rows.replaceChildren(...rows);
    this.#say(count);
  }

  #row(at, matching) {
    const index = this.#shown ? this.#shown[at] : at;
    const row = document.createElement("div");
    row.className = `log-row log-${this.#levels[index]}`;
    if (matching.has(at)) row.classList.add("is-match");
    if (this.#matches[this.#current] === at) row.classList.add("is-current");
    if (index === this.#marked) row.classList.add("is-evidence");
    const number = document.createElement("span");
    number.className = "log-no";
    number.textContent = this.#before + index + 1;
    const text = document.createElement("span");
    text.className = "log-text";
    text.textContent = this.#lines[index];
    row.append(number, text);
    return row;
  }

  #say(count) {
    const found = this.search.value.trim()
      ? phrase("%(at)s of %(n)s found", { at: this.#current + 1, n: grouped(this.#matches.length) })
      : phrase("%(n)s lines", { n: grouped(this.#before + count) });
    if (this.note.textContent !== found) this.note.textContent = found;
  }

  #follows() {
    return this.tail.getAttribute("aria-pressed") === "true";
  }

  #follow(on) {
    this.tail.setAttribute("aria-pressed", String(on));
  }

  #show(at) {
    this.#follow(false);
    // Rows may have been filtered out until now: there must be room before the view can scroll to the line.
    this.space.style.height = `${this.#count() * ROW}px`;
    this.view.scrollTop = Math.max(0, at * ROW - this.view.clientHeight / 2);
    this.#draw();
  }

  #listen() {
    this.view.addEventListener("scroll", () => {
      const atEnd = this.view.scrollTop + this.view.clientHeight >= this.view.scrollHeight - ROW;
      if (!atEnd && this.#follows() && this.wheeled) this.#follow(false);
      this.#draw();
    }, { passive: true });
    // Only the person's own scrolling lets go of the end, not new rows.
    for (const event of ["wheel", "touchmove", "keydown", "pointerdown"]) {
      this.view.addEventListener(event, () => {
        this.wheeled = true;
        setTimeout(() => { this.wheeled = false; }, 400);
      }, { passive: true });
    }
    this.tail.addEventListener("click", () => {
      this.#follow(!this.#follows());
      this.#draw();
    });
    this.level.addEventListener("change", () => { this.#filter(); this.#draw(); });
    this.search.addEventListener("input", () => { this.#current = -1; this.#filter(); this.#draw(); });
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !this.#matches.length) return;
      event.preventDefault();
      const step = event.shiftKey ? -1 : 1;
      this.#current = (this.#current + step + this.#matches.length) % this.#matches.length;
      this.#show(this.#matches[this.#current]);
    });
    this.root.querySelector("[data-log-error]").addEventListener("click", () => this.#firstError());
    this.root.querySelector("[data-log-copy]").addEventListener("click", async () => {
      const done = await copy([...this.#lines, this.#open].join("\n"));
      toast(done ? "ok" : "bad", done ? gettext("Copied.") : gettext("The browser does not allow copying here."));
    });
  }

  // A line by its number in the whole log, as evidence and links name it.
  goTo(number) {
    this.level.value = "all";
    this.#filter();
    const at = number - 1 - this.#before;
    if (at < 0 || at >= this.#lines.length) {
      toast("bad", gettext("That line is not loaded: download the log to see it."));
      return;
    }
    this.#marked = at;
    this.root.scrollIntoView({ block: "nearest" });
    this.#show(at);
    this.view.focus({ preventScroll: true });
  }

  #firstError() {
    this.level.value = "all";
    this.#filter();
    const at = this.#levels.indexOf("error");
    if (at < 0) toast("ok", gettext("No line looks like an error."));
    else this.#show(at);
  }
}

const views = new WeakMap();

export function startLogs(root = document) {
  for (const node of root.querySelectorAll("[data-log]")) {
    if (!node.dataset.started) {
      node.dataset.started = "1";
      views.set(node, new LogView(node));
    }
  }
}

startLogs();
document.addEventListener("live:drawn", () => startLogs());
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-log-line]");
  const log = link && document.querySelector("[data-log]");
  if (!log || !views.has(log)) return;
  event.preventDefault();
  history.replaceState(null, "", link.getAttribute("href"));
  views.get(log).goTo(Number(link.dataset.logLine));
});
