// One chart a frame. Cards ask to be drawn; each animation frame draws the one that has waited longest, so that a page
// of many charts never makes one long task and the frame stays free for scrolling and typing.
const KEPT = 512;

export class Scheduler {
  #waiting = new Set();
  #frame = 0;
  #request;
  // How long the latest draws took (ms), in which frame each was, and whether Plotly drew it, for the benchmark and the
  // tests. Bounded.
  took = new Float64Array(KEPT);
  frames = new Float64Array(KEPT);
  whole = new Uint8Array(KEPT);
  draws = 0;

  constructor(request = (job) => requestAnimationFrame(job)) {
    this.#request = request;
  }

  // A job is an object with draw(), which tells whether it was drawn as a whole; asking twice before its turn draws once.
  ask(job) {
    this.#waiting.add(job);
    this.#frame ||= this.#request((at) => this.#run(at));
  }

  drop(job) {
    this.#waiting.delete(job);
  }

  get waiting() {
    return this.#waiting.size;
  }

  #run(at) {
    this.#frame = 0;
    const [job] = this.#waiting;
    if (!job) return;
    this.#waiting.delete(job);
    const begun = performance.now();
    const place = this.draws % KEPT;
    try {
      this.whole[place] = job.draw() ? 1 : 0;
    } finally {
      this.took[place] = performance.now() - begun;
      this.frames[place] = at;
      this.draws += 1;
      if (this.#waiting.size) this.#frame = this.#request((next) => this.#run(next));
    }
  }
}

export const scheduler = new Scheduler();
