// The strip of tokens under each answer: a bar for each arrival on the answer's own time axis, stalls marked, and what
// is known of a token where the pointer or the arrow keys are. Drawn on a canvas by columns of pixels, so that an answer
// of 20,000 tokens takes no longer than one of 20.
import { token } from "../charts/colors.js";
import { ABSENT, grouped, significant } from "../pieces/format.js";
import { gettext, phrase } from "../pieces/words.js";
import { Timeline } from "./timings.js";
import { TokenTable } from "./token_table.js";
import { alternatives, sentence, visible } from "./token_words.js";

const DRAW_MS = 100;
const FIGURES_MS = 500;
const FEWEST_PX = 2;
const PAGE = 50;

export class TokenStrip {
  #canvas;
  #tip;
  #drawn = 0;
  #timer = 0;
  #figured = 0;
  #selected = -1;
  #ended = null;
  #letters = null;
  #table;

  // `textOf` gives the answer's text as it is now.
  constructor(view, textOf) {
    this.view = view;
    this.textOf = textOf;
    this.timeline = new Timeline();
    this.#canvas = view.querySelector("[data-tokens-strip]");
    this.#tip = view.querySelector("[data-tokens-tip]");
    this.#table = new TokenTable(view.querySelector("[data-tokens-table]"), this);
    this.#canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.#canvas.addEventListener("pointerleave", () => { if (document.activeElement !== this.#canvas) this.select(-1); });
    this.#canvas.addEventListener("pointerdown", (event) => this.#point(event));
    this.#canvas.addEventListener("keydown", (event) => this.#key(event));
    this.#canvas.addEventListener("focus", () => { if (this.#selected < 0 && this.timeline.length) this.select(0); });
    this.#canvas.addEventListener("blur", () => this.select(-1));
    view.querySelector("details").addEventListener("toggle", () => this.#table.show());
    new ResizeObserver(() => this.draw()).observe(this.#canvas);
    document.addEventListener("themechange", () => this.draw());
  }

  // From the first message on, again: a page that finds the answer under way, or one that comes anew.
  reset() {
    this.timeline = new Timeline();
    this.#letters = null;
    this.#ended = null;
    this.select(-1);
    this.draw();
  }

  add(marks) {
    if (!marks.length) return;
    this.timeline.add(marks);
    this.#letters = null;
    this.#ask();
  }

  // The answer ended; its measured figures take the place of those counted here.
  finish(turn) {
    this.#ended = turn;
    this.#letters = null;
    this.draw();
    this.#figures(turn.metrics, turn);
    this.#table.show();
  }

  // What is known of one arrival, for the tip, the keyboard and the table.
  fact(index) {
    const line = this.timeline;
    const chances = line.chances[index] ?? [];
    const count = line.tokens[index];
    const last = line.upTo[index];
    return {
      number: count > 1 ? `${grouped(last - count + 1)}–${grouped(last)}` : grouped(last),
      text: this.#text(index),
      at: line.at[index],
      gap: line.gaps[index],
      first: index === 0,
      stall: line.stalls(index),
      count,
      chances,
    };
  }

  select(index) {
    this.#selected = index;
    if (index < 0) this.#tip.hidden = true;
    else this.#tell(index);
    this.draw();
  }

  draw() {
    this.#drawn = performance.now();
    const width = Math.round(this.#canvas.clientWidth * devicePixelRatio);
    const height = Math.round(this.#canvas.clientHeight * devicePixelRatio);
    if (!width || !height) return;
    if (this.#canvas.width !== width) this.#canvas.width = width;
    if (this.#canvas.height !== height) this.#canvas.height = height;
    const pen = this.#canvas.getContext("2d");
    pen.clearRect(0, 0, width, height);
    this.#paint(pen, width, height);
  }

  #paint(pen, width, height) {
    const { timeline } = this;
    const count = timeline.length;
    const bar = Math.max(1, Math.round(FEWEST_PX * devicePixelRatio * 0.75));
    const scale = count ? (width - bar) / Math.max(timeline.end, 1) : 0;
    const waiting = Math.round((timeline.at[0] ?? 0) * scale);
    pen.fillStyle = token("--surface-3");
    pen.fillRect(0, height - devicePixelRatio, width, devicePixelRatio);
    if (count) pen.fillRect(0, height * 0.4, waiting, height * 0.6);
    // One pass over the arrivals: bars by column of pixels, stalls as they come.
    const stalled = token("--warn");
    const drawn = token("--chart-1");
    let most = 1;
    const tokens = new Uint32Array(width);
    pen.fillStyle = stalled;
    pen.globalAlpha = 0.35;
    for (let index = 0; index < count; index += 1) {
      const x = Math.round(timeline.at[index] * scale);
      tokens[x] += timeline.tokens[index];
      if (tokens[x] > most) most = tokens[x];
      if (timeline.stalls(index)) {
        const before = Math.round(timeline.at[index - 1] * scale) + bar;
        pen.fillRect(before, height * 0.25, Math.max(1, x - before), height * 0.75);
      }
    }
    pen.globalAlpha = 1;
    pen.fillStyle = drawn;
    for (let x = 0; x < width; x += 1) {
      if (!tokens[x]) continue;
      const tall = height * (0.45 + 0.55 * Math.sqrt(tokens[x] / most));
      pen.fillRect(x, height - tall, bar, tall);
    }
    if (this.#selected >= 0 && this.#selected < count) {
      pen.fillStyle = token("--accent");
      pen.fillRect(Math.round(timeline.at[this.#selected] * scale), 0, Math.max(bar, 2 * devicePixelRatio), height);
    }
  }

  #ask() {
    if (this.#timer) return;
    const wait = Math.max(0, this.#drawn + DRAW_MS - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.draw();
      if (this.#ended || performance.now() - this.#figured < FIGURES_MS) return;
      this.#figured = performance.now();
      this.#figures(this.timeline.summary(), null);
    }, wait);
  }

  #figures(metrics, turn) {
    for (const node of this.view.querySelectorAll("[data-figure]")) {
      const value = metrics[node.dataset.figure];
      if (value !== undefined) node.textContent = significant(value);
    }
    const stalls = this.view.querySelector("[data-stalls]");
    if (stalls) stalls.textContent = grouped(this.timeline.countStalls());
    if (!turn) return;
    const served = this.view.querySelector("[data-served]");
    if (served) served.textContent = servedBy(turn);
  }

  #point(event) {
    const { length } = this.timeline;
    if (!length) return;
    const box = this.#canvas.getBoundingClientRect();
    const ms = ((event.clientX - box.left) / box.width) * this.timeline.end;
    this.select(nearest(this.timeline.at, ms));
  }

  #key(event) {
    const last = this.timeline.length - 1;
    if (last < 0) return;
    const now = Math.max(0, this.#selected);
    const moves = {
      ArrowRight: event.shiftKey ? this.#stall(now, 1) : now + 1,
      ArrowLeft: event.shiftKey ? this.#stall(now, -1) : now - 1,
      PageDown: now + PAGE,
      PageUp: now - PAGE,
      Home: 0,
      End: last,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    this.select(Math.min(last, Math.max(0, moves[event.key])));
  }

  // The next arrival after a stall in that direction; where there is none, the one that is selected.
  #stall(from, step) {
    for (let index = from + step; index >= 0 && index < this.timeline.length; index += step) {
      if (this.timeline.stalls(index)) return index;
    }
    return from;
  }

  #tell(index) {
    const fact = this.fact(index);
    const words = sentence(fact);
    this.#tip.hidden = false;
    const text = document.createElement("code");
    text.textContent = visible(fact.text) || gettext("no text");
    this.#tip.replaceChildren(text, ` ${words}`);
    const others = alternatives(fact);
    if (others) this.#tip.append(document.createElement("br"), phrase("likeliest: %(told)s", { told: others }));
    this.#canvas.setAttribute("aria-valuemax", String(this.timeline.length));
    this.#canvas.setAttribute("aria-valuenow", String(index + 1));
    this.#canvas.setAttribute("aria-valuetext", `${phrase("Token %(n)s", { n: fact.number })}: ${visible(fact.text)}, ${words}. ${others}`);
  }

  #text(index) {
    this.#letters ??= [...this.textOf()];
    const from = this.timeline.from[index];
    return this.#letters.slice(from, from + this.timeline.letters[index]).join("");
  }
}

// Token number, time and chance in words.
export function servedBy(turn) {
  if (!turn.instance) return ABSENT;
  return turn.revision ? phrase("%(uid)s, revision %(number)s", { uid: turn.instance, number: turn.revision }) : turn.instance;
}

// Index of the value nearest to `wanted`; `values` ascend.
export function nearest(values, wanted) {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - values[low - 1] < values[low] - wanted ? low - 1 : low;
}
