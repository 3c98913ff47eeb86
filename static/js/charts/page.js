// The charts of one page: one set of figures, one time axis, one live topic for all of them.
import { live } from "../realtime/socket.js";
import { gettext } from "../pieces/words.js";
import { Bars } from "./bars.js";
import { HeatMap } from "./heat.js";
import { LineChart } from "./line.js";
import { Marks } from "./marks.js";
import { Series } from "./series.js";
import { View } from "./view.js";

const KINDS = { line: LineChart, heat: HeatMap, bars: Bars };
const TICK_MS = 1000;
// What comes whole from the server (heat map, batch sizes, compared period) is fetched again this often at most.
const REFRESH_MS = 10000;
const TYPED_MS = 350;

export class ChartPage {
  #live;
  #earlier;
  #zoomed = null;
  #refreshed = Date.now();
  #fetching = null;
  #search = location.search;
  #typed = 0;
  #given = new WeakMap();

  constructor(spec, { root = document, zooms = true } = {}) {
    this.spec = spec;
    this.zooms = zooms;
    this.view = new View({ now: spec.now, window: spec.window, fixed: spec.fixed ?? null });
    this.#live = new Series(spec.frame, spec.window);
    this.#earlier = spec.compare ? new Series(spec.compare, spec.window) : null;
    this.marks = new Marks(root);
    this.live = Boolean(spec.topic) && !spec.fixed;
    this.cards = [...root.querySelectorAll("[data-chart]")].map((node) => new KINDS[node.dataset.kind ?? "line"](node, this));
    this.view.onChange(() => this.#viewChanged());
    if (this.live) {
      live.subscribe(spec.topic, { samples: (list) => this.add(list) }, { since: spec.frame.live_from - 0.001 });
      setInterval(() => this.#tick(), TICK_MS);
    }
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.ask(); });
    document.addEventListener("live:drawn", () => { if (this.marks.read()) this.ask(); });
  }

  get series() {
    return this.#zoomed?.series ?? this.#live;
  }

  get compare() {
    return this.#zoomed?.compare ?? this.#earlier;
  }

  ask() {
    for (const card of this.cards) card.ask();
  }

  add(samples) {
    this.#live.add(samples);
    this.view.heard(samples[samples.length - 1].at);
    if (this.view.moving) this.#follow();
  }

  // The axis has moved on, with or without new figures.
  #follow() {
    for (const card of this.cards) card.follow();
  }

  point(moment) {
    for (const card of this.cards) card.point?.(moment);
  }

  // The axis moves on also over a gap; on a long range it moves by less than a pixel a second.
  #tick() {
    if (document.hidden || !this.view.moving) return;
    if (Date.now() - (this.#moved ?? 0) >= Math.max(TICK_MS, this.spec.window)) {
      this.#moved = Date.now();
      if (this.view.now() - this.#live.newest > 1.5) this.#follow();
    }
    const every = Math.max(REFRESH_MS, this.#live.step * 1000);
    if (this.spec.data_url && Date.now() - this.#refreshed > every) this.#refresh();
  }

  #moved = 0;

  async #refresh() {
    this.#refreshed = Date.now();
    const given = await this.#load(`${this.spec.query}&only=cards`);
    if (given && this.view.moving) this.#take(given);
  }

  // One request at a time; a later one makes the answer of an earlier one worthless.
  async #load(query) {
    this.#fetching?.abort();
    const turn = new AbortController();
    this.#fetching = turn;
    try {
      const answer = await fetch(`${this.spec.data_url}?${query}`, { signal: turn.signal });
      return answer.ok && !answer.redirected ? await answer.json() : null;
    } catch {
      return null;
    }
  }

  // A card of which the server says what it said before has nothing to draw.
  #take(given) {
    for (const card of this.cards) {
      const fresh = given.cards[card.node.dataset.chart];
      const text = fresh && JSON.stringify(fresh);
      if (!fresh || this.#given.get(card) === text) continue;
      this.#given.set(card, text);
      card.take(fresh);
    }
    if (given.compare && !this.#zoomed && this.#earlier) this.#earlier = new Series(given.compare, this.spec.window);
  }

  #viewChanged() {
    const { zoom } = this.view;
    this.ask();
    document.dispatchEvent(new CustomEvent("charts:view", { detail: this.view }));
    clearTimeout(this.#typed);
    if (!this.spec.data_url) return;
    if (!zoom) {
      if (this.#zoomed || location.search !== this.#search) history.replaceState(null, "", `${location.pathname}${this.#search}`);
      this.#zoomed = null;
      return;
    }
    // The page's own points are shown at once; finer ones come when the zoom stands still.
    const compare = this.spec.compare_name ? `&compare=${this.spec.compare_name}` : "";
    const query = `from=${Math.floor(zoom[0])}&to=${Math.ceil(zoom[1])}${compare}`;
    history.replaceState(null, "", `${location.pathname}?${query}`);
    this.#typed = setTimeout(() => this.#finer(query, zoom), TYPED_MS);
  }

  async #finer(query, zoom) {
    const given = await this.#load(query);
    if (!given || this.view.zoom !== zoom) return;
    const window = zoom[1] - zoom[0];
    this.#zoomed = {
      series: new Series(given.frame, window),
      compare: given.compare ? new Series(given.compare, window) : null,
    };
    this.#take(given);
    this.ask();
  }
}

// The bar above the charts: pause, zoom, the compared period, a range of one's own.
export function startBar(bar, page) {
  const pause = bar.querySelector("[data-charts-pause]");
  const reset = bar.querySelector("[data-charts-reset]");
  const show = () => {
    reset.hidden = !page.view.zoom;
    if (!pause) return;
    pause.setAttribute("aria-pressed", String(page.view.paused));
    pause.querySelector("[data-word]").textContent = page.view.paused ? gettext("Go on") : gettext("Pause");
  };
  pause?.addEventListener("click", () => (page.view.paused ? page.view.goOn() : page.view.pause()));
  reset.addEventListener("click", () => page.view.show(null));
  for (const button of bar.querySelectorAll("[data-charts-step]")) {
    const [factor, shift] = button.dataset.chartsStep.split(" ").map(Number);
    button.addEventListener("click", () => page.view.step(factor, shift));
  }
  bar.querySelector("[data-charts-compare]")?.addEventListener("change", (event) => event.target.form.requestSubmit());
  const own = bar.querySelector("[data-charts-own]");
  own?.addEventListener("submit", () => {
    // The person types their own clock's time; the address holds one that means the same everywhere.
    for (const input of own.querySelectorAll("input[type=datetime-local]")) {
      const at = new Date(input.value).getTime() / 1000;
      if (!Number.isFinite(at)) continue;
      input.type = "hidden";
      input.value = String(Math.floor(at));
    }
  });
  for (const input of own?.querySelectorAll("[data-at]") ?? []) {
    const at = new Date(Number(input.dataset.at) * 1000);
    input.value = new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  }
  document.addEventListener("charts:view", show);
  show();
}
