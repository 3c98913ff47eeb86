// Figures in columns of typed arrays, bounded: the newest `capacity` rows at least, twice that at most. NaN is absent.
export class Columns {
  #capacity;
  #columns = new Map();
  length = 0;

  constructor(keys, capacity) {
    this.#capacity = Math.max(8, capacity);
    this.at = new Float64Array(2 * this.#capacity);
    this.axis = new Float64Array(2 * this.#capacity);
    for (const key of keys) this.#columns.set(key, new Float64Array(2 * this.#capacity));
  }

  get capacity() {
    return this.#capacity;
  }

  get keys() {
    return [...this.#columns.keys()];
  }

  column(key) {
    return this.#columns.get(key);
  }

  get last() {
    return this.length ? this.at[this.length - 1] : 0;
  }

  // `axis` is where Plotly draws the moment; `value(key)` gives each column's number or null.
  push(at, axis, value) {
    if (this.length === 2 * this.#capacity) this.#shift();
    this.length += 1;
    this.amend(at, axis, value);
  }

  // Writes the last row anew.
  amend(at, axis, value) {
    const row = this.length - 1;
    this.at[row] = at;
    this.axis[row] = axis;
    for (const [key, column] of this.#columns) column[row] = value(key) ?? NaN;
  }

  #shift() {
    for (const column of [this.at, this.axis, ...this.#columns.values()]) column.copyWithin(0, this.#capacity);
    this.length = this.#capacity;
  }

  // First and last row (exclusive) between two moments, with one more on each side, so that lines reach the edges.
  within(from, to) {
    return [Math.max(0, this.#first(from) - 1), Math.min(this.length, this.#first(to) + 1)];
  }

  #first(moment) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.at[middle] < moment) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
