// A heat map: time across, the buckets of a histogram upwards, the deeper the more requests. Which histogram is chosen
// in the card. The figures come whole from the server; live samples carry no histograms.
import { ABSENT, clock, grouped } from "../pieces/format.js";
import { gettext, phrase } from "../pieces/words.js";
import { Card } from "./card.js";
import { mixed, paintLayout, token } from "./colors.js";
import { axisTime } from "./time.js";

const TABLE_ROWS = 120;

export class HeatMap extends Card {
  #end = 0;
  #taken = 0;

  constructor(node, page) {
    super(node, page);
    this.choices = [...node.querySelectorAll("[data-heat]")];
    this.heats = this.spec.heats;
    this.name = this.choices.find((input) => input.checked)?.value;
    for (const input of this.choices) {
      input.addEventListener("change", () => {
        this.name = input.value;
        this.ask();
      });
    }
  }

  take(heats) {
    this.heats = heats;
    this.#taken += 1;
    this.ask();
  }

  content() {
    return `${this.name} ${this.#taken}`;
  }

  get heat() {
    return this.heats[this.name] ?? null;
  }

  // Samples carry no histograms, so only the axis moves: by half a column at a time.
  follow() {
    const [from, to] = this.page.view.range();
    if (Math.abs(to - this.#end) >= (to - from) / 240) this.ask();
  }

  paint() {
    paintLayout(this.figure.layout);
    const [trace] = this.figure.data;
    trace.colorscale = [
      [0, mixed("--chart-1", "--surface", 0.22)],
      [0.5, mixed("--chart-1", "--surface", 0.7)],
      [1, mixed("--chart-1", "--ink", 0.7)],
    ];
    this.figure.layout.hoverlabel.font.color = token("--ink");
  }

  fill() {
    const [from, to] = this.page.view.range();
    this.#end = to;
    this.timeAxis(from, to);
    this.figure.layout.shapes = this.page.marks.shapes(from, to);
    const [trace] = this.figure.data;
    const { heat } = this;
    if (!heat?.times.length) {
      Object.assign(trace, { x: [0], y: [""], z: [[NaN]], customdata: [[0]] });
      this.say(gettext("No requests in this time."));
      return;
    }
    trace.x = Float64Array.from(heat.times, axisTime);
    trace.y = heat.labels;
    // Roots, so that one slow request among a thousand quick ones is still seen; an empty bucket is no colour.
    trace.z = heat.labels.map((_, bucket) => Float64Array.from(heat.counts, (column) => (column?.[bucket] ? Math.sqrt(column[bucket]) : NaN)));
    trace.customdata = heat.labels.map((_, bucket) => heat.counts.map((column) => column?.[bucket] ?? 0));
    trace.zmin = 0;
    trace.hovertemplate = `%{x|%H:%M:%S}<br>%{y} ${heat.unit}: %{customdata:,.3~r}<extra></extra>`;
    this.say(phrase("%(count)s values", { count: grouped(Math.round(heat.total)) }));
  }

  #lines() {
    const { heat } = this;
    if (!heat) return [];
    return heat.times.map((at, column) => [at, ...heat.labels.map((_, bucket) => heat.counts[column]?.[bucket] ?? null)]);
  }

  rows() {
    const labels = this.heat?.labels ?? [];
    const unit = this.heat?.unit ?? "";
    const body = this.#lines().slice(-TABLE_ROWS).reverse();
    return {
      head: [gettext("Time"), ...labels.map((label) => `${label} ${unit}`)],
      body: body.map(([at, ...counts]) => [clock(at), ...counts.map((count) => (count === null ? ABSENT : grouped(Math.round(count))))]),
    };
  }

  csv() {
    return [["at", ...(this.heat?.labels ?? [])], ...this.#lines().map(([at, ...counts]) => [new Date(at * 1000).toISOString(), ...counts.map((count) => count ?? "")])];
  }
}
