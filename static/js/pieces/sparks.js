// Sparklines and stat tiles that samples move. The first line is drawn by apps/dashboard/sparklines.py; here it goes on
// with the same steps. Every value comes from a sample: a second that nobody told about stays a gap.
import { live } from "../realtime/socket.js";
import { ABSENT, change, significant } from "./format.js";

const STEP = 5;
const POINTS = 60;
// Twice the line, to compare it with the time before.
const KEPT = 2 * POINTS;
const STALE = 10;

export function path(values) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return "";
  const top = Math.max(...known) || 1;
  let down = false;
  let drawn = "";
  values.forEach((value, index) => {
    if (value === null) {
      down = false;
      return;
    }
    const x = (index * 100) / (values.length - 1);
    const y = 22.5 - (value / top) * 21;
    drawn += `${down ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}${down ? "" : "h.01"}`;
    down = true;
  });
  return drawn;
}

// One series: sums and counts per step, and the newest value with its time.
export class Series {
  #steps = new Map();
  newest = null;
  at = 0;

  constructor(values = [], now = 0) {
    const last = Math.floor(now / STEP);
    values.forEach((value, index) => {
      if (value !== null) this.#steps.set(last - values.length + 1 + index, [value, 1]);
    });
  }

  add(at, value) {
    if (at >= this.at) {
      this.at = at;
      this.newest = value;
    }
    if (value === null) return;
    const step = Math.floor(at / STEP);
    const [sum, count] = this.#steps.get(step) ?? [0, 0];
    this.#steps.set(step, [sum + value, count + 1]);
    for (const old of this.#steps.keys()) if (old < step - KEPT) this.#steps.delete(old);
  }

  values(now, points = POINTS) {
    const last = Math.floor(now / STEP);
    return Array.from({ length: points }, (_, index) => {
      const found = this.#steps.get(last - points + 1 + index);
      return found ? found[0] / found[1] : null;
    });
  }

  // Share by which the mean of the later half differs from that of the earlier one, or null.
  change(now) {
    const values = this.values(now, KEPT);
    const means = [values.slice(0, POINTS), values.slice(POINTS)].map((part) => {
      const known = part.filter((value) => value !== null);
      return known.length < POINTS / 10 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
    });
    return means[0] && means[1] !== null ? means[1] / means[0] - 1 : null;
  }

  current(now) {
    return now - this.at > STALE ? null : this.newest;
  }
}

// `spec` is the json_script of the page: {now, scale, series: {topic: {key: [values]}}}.
// The topic "metrics" moves the tiles, "metrics:<id>" the cells of that deployment.
export class Sparks {
  #series = new Map();
  #due = false;

  constructor(spec) {
    this.spec = spec;
    this.skew = Date.now() / 1000 - spec.now;
    for (const [topic, lines] of Object.entries(spec.series)) {
      const kept = {};
      for (const key of Object.keys(lines)) kept[key] = new Series(lines[key], spec.now);
      this.#series.set(topic, kept);
      live.subscribe(topic, { samples: (list) => this.#take(kept, list) }, { since: spec.now - 1 });
    }
    setInterval(() => this.#draw(), 1000);
  }

  #take(kept, samples) {
    for (const sample of samples) {
      for (const key of Object.keys(kept)) kept[key].add(sample.at, sample[key] ?? null);
    }
    this.#due = true;
  }

  #draw() {
    if (document.hidden || !this.#due) return;
    const now = Date.now() / 1000 - this.skew;
    for (const [topic, kept] of this.#series) {
      for (const key of Object.keys(kept)) {
        const node = document.querySelector(
          topic === "metrics" ? `[data-tile="${key}"]` : `[data-spark="${topic.split(":")[1]}:${key}"]`,
        );
        if (node) this.#write(node, key, kept[key], now);
      }
    }
  }

  #write(node, key, series, now) {
    const value = series.current(now);
    const text = node.querySelector("[data-tile-value], [data-spark-value]");
    const shown = value === null ? ABSENT : significant(value * (this.spec.scale[key] ?? 1));
    if (text && text.textContent !== shown) text.textContent = shown;
    node.querySelector(".spark path")?.setAttribute("d", path(series.values(now)));
    const against = node.querySelector("[data-tile-change]");
    if (against) against.textContent = change(series.change(now));
  }
}
