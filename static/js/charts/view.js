// The time axis that all charts of a page share: it moves on, stands still, or shows a part.
export class View {
  #listeners = new Set();
  #stoppedAt = null;
  zoom = null;

  // `fixed`: [from, to] of a range that is over; without it the axis ends now. `now` is the server's clock.
  constructor({ now, window, fixed = null }) {
    this.window = window;
    this.fixed = fixed;
    // How far the browser's clock is ahead of the server's: at most what it was when the page's first byte came.
    const [navigation] = performance.getEntriesByType("navigation");
    const came = navigation ? performance.timeOrigin + navigation.responseStart : Date.now();
    this.skew = came / 1000 - now;
  }

  // A sample that arrives was taken before: no clock is further ahead than that. The quickest one tells it best.
  heard(at) {
    this.skew = Math.min(this.skew, Date.now() / 1000 - at);
  }

  now() {
    return Date.now() / 1000 - this.skew;
  }

  get paused() {
    return this.#stoppedAt !== null;
  }

  // Whether the axis moves by itself.
  get moving() {
    return !this.paused && !this.zoom && !this.fixed;
  }

  whole() {
    if (this.fixed) return this.fixed;
    const end = this.#stoppedAt ?? this.now();
    return [end - this.window, end];
  }

  range() {
    return this.zoom ?? this.whole();
  }

  pause() {
    this.#stoppedAt = this.now();
    this.#tell();
  }

  goOn() {
    this.#stoppedAt = null;
    this.#tell();
  }

  // [from, to] in epoch seconds, or null for all of it.
  show(zoom) {
    this.zoom = zoom && zoom[1] - zoom[0] >= 1 ? zoom : null;
    this.#tell();
  }

  // Makes the shown part `factor` times as long around its middle, and moves it by `shift` of its length.
  step(factor, shift) {
    const [from, to] = this.range();
    const middle = (from + to) / 2 + shift * (to - from);
    const half = Math.max(5, ((to - from) / 2) * factor);
    this.show([middle - half, Math.min(middle + half, this.now())]);
  }

  onChange(listener) {
    this.#listeners.add(listener);
  }

  #tell() {
    for (const listener of this.#listeners) listener();
  }
}
