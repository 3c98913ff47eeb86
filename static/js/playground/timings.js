// The engine's messages of one answer, and what their times say: the same figures as apps/streaming/domain/timings.py.
//
// A mark is [ms since the question was sent, tokens or null, characters, chances?]. A message without tokens is no
// arrival; one of n tokens counts n times with an n-th of its gap.

const STALL_TIMES = 5;
const STALL_LEAST_MS = 40;

export class Timeline {
  // Milliseconds and tokens of each arrival, the characters before it and with it, and its chances.
  at = [];
  tokens = [];
  from = [];
  letters = [];
  chances = [];
  #characters = 0;
  // Tokens up to and with each arrival.
  upTo = [];
  counted = true;
  gaps = [];
  #median = 0;
  #sortedAt = 0;

  get length() {
    return this.at.length;
  }

  get end() {
    return this.at[this.at.length - 1] ?? 0;
  }

  add(marks) {
    for (const [ms, tokens, characters, chances] of marks) {
      if (tokens === null) this.counted = false;
      if (tokens === 0) {
        // Its characters belong to the message before: the rest of a letter that was held back.
        if (this.length) this.letters[this.length - 1] += characters;
        this.#characters += characters;
        continue;
      }
      this.gaps.push(this.length ? ms - this.end : ms);
      this.at.push(ms);
      this.tokens.push(tokens ?? 1);
      this.upTo.push((this.upTo[this.upTo.length - 1] ?? 0) + (tokens ?? 1));
      this.from.push(this.#characters);
      this.letters.push(characters);
      this.chances.push(chances ?? null);
      this.#characters += characters;
    }
  }

  // The median gap, looked up again only when there are a tenth more of them.
  get median() {
    if (this.length < 2) return 0;
    if (this.length > this.#sortedAt * 1.1) {
      this.#sortedAt = this.length;
      this.#median = percentile(this.gaps.slice(1), 50);
    }
    return this.#median;
  }

  stalls(index) {
    return index > 0 && this.gaps[index] > Math.max(STALL_LEAST_MS, STALL_TIMES * this.median);
  }

  countStalls() {
    let count = 0;
    for (let index = 1; index < this.length; index += 1) if (this.stalls(index)) count += 1;
    return count;
  }

  summary() {
    const perToken = [];
    for (let index = 1; index < this.length; index += 1) {
      const n = this.tokens[index];
      for (let k = 0; k < n; k += 1) perToken.push(this.gaps[index] / n);
    }
    const span = (this.end - this.at[0]) / 1000;
    const tokens = this.upTo[this.length - 1] ?? 0;
    return {
      ttft_ms: this.length ? this.at[0] : null,
      itl_p50_ms: this.counted && perToken.length ? percentile(perToken, 50) : null,
      itl_p99_ms: this.counted && perToken.length ? percentile(perToken, 99) : null,
      tokens_per_second: this.counted && tokens > 1 && span > 0 ? (tokens - 1) / span : null,
    };
  }
}

// Linear interpolation, as numpy's default.
export function percentile(values, percent) {
  const sorted = Float64Array.from(values).sort();
  const place = ((sorted.length - 1) * percent) / 100;
  const below = Math.floor(place);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}
