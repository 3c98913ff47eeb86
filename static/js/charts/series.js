// The figures that all charts of a page share. They begin with the frame of apps/dashboard/charts/frames.py and go on with
// live samples by the same rules: a step is the mean of its samples (the highest of quantiles and flags), and a silence
// is a row of NaN. No value is made up here.
import { axisTime } from "./time.js";
import { Columns } from "./columns.js";

const GAP_STEPS = 1.8;
// Rows of gaps come on top of one row for each step.
const SPARE = 24;

export class Series {
  #kinds;
  #number = null;
  #count = 0;
  #at = 0;
  #sums = new Map();
  #known = new Map();
  newest = 0;

  constructor(frame, window) {
    this.step = frame.step;
    this.liveFrom = frame.live_from;
    this.#kinds = frame.kinds;
    const keys = Object.keys(frame.columns);
    this.rows = new Columns(keys, Math.max(frame.at.length, Math.ceil(window / frame.step)) + SPARE);
    frame.at.forEach((at, index) => this.rows.push(at, axisTime(at), (key) => frame.columns[key][index]));
    this.newest = frame.at.length ? Math.max(this.rows.last, 0) : 0;
  }

  // Samples in order; what is not newer than the frame or the last sample is passed over.
  add(samples) {
    for (const sample of samples) {
      if (sample.at < this.liveFrom || sample.at <= this.#at) continue;
      const number = Math.floor(sample.at / this.step);
      if (number === this.#number) this.#more(sample);
      else this.#begin(number, sample);
      this.#at = sample.at;
      this.newest = sample.at;
    }
  }

  #begin(number, sample) {
    this.#number = number;
    this.#count = 0;
    for (const key of this.rows.keys) {
      this.#sums.set(key, 0);
      this.#known.set(key, 0);
    }
    this.#moments = 0;
    this.#take(sample);
    const { last } = this.rows;
    if (last && sample.at - last > this.step * GAP_STEPS) {
      const gap = last + this.step;
      this.rows.push(gap, axisTime(gap), () => null);
    }
    const at = this.#mean();
    this.rows.push(at, axisTime(at), (key) => this.#value(key));
  }

  #more(sample) {
    this.#take(sample);
    const at = this.#mean();
    this.rows.amend(at, axisTime(at), (key) => this.#value(key));
  }

  #moments = 0;

  #take(sample) {
    this.#count += 1;
    this.#moments += sample.at;
    for (const key of this.rows.keys) {
      const value = sample[key];
      if (value === null || value === undefined) continue;
      const known = this.#known.get(key);
      const before = this.#sums.get(key);
      this.#sums.set(key, this.#kinds[key] === "highest" ? (known ? Math.max(before, value) : value) : before + value);
      this.#known.set(key, known + 1);
    }
  }

  #mean() {
    return this.#moments / this.#count;
  }

  #value(key) {
    const known = this.#known.get(key);
    if (!known) return null;
    return this.#kinds[key] === "highest" ? this.#sums.get(key) : this.#sums.get(key) / known;
  }

  // One line's value in a row: key x scale / per; NaN where a part of it is absent or the divisor is zero.
  value(line, row) {
    const top = line.key ? this.rows.column(line.key)?.[row] ?? NaN : 1;
    if (!line.per) return top * line.scale;
    const below = this.rows.column(line.per)?.[row] ?? NaN;
    return below > 0 ? (top * line.scale) / below : NaN;
  }

  // The same of the rows from `first` to `end` (exclusive) into `values`; widens `extent`, the [lowest, highest] of them.
  read(line, first, end, values, extent) {
    const top = line.key ? this.rows.column(line.key) : null;
    const below = line.per ? this.rows.column(line.per) : null;
    for (let row = first; row < end; row += 1) {
      let value = line.key ? (top ? top[row] : NaN) * line.scale : line.scale;
      if (line.per) value = below && below[row] > 0 ? value / below[row] : NaN;
      values[row - first] = value;
      if (value < extent[0]) extent[0] = value;
      if (value > extent[1]) extent[1] = value;
    }
  }
}
