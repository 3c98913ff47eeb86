// The token views of a conversation: one for each answer in the page, filled by the socket while it streams and from the
// server where it ended before. An answer that is drawn again (another branch) gets its view anew.
import { TokenStrip } from "./strip.js";

export class TokenViews {
  #strips = new Map();
  // Views whose times are here or on their way.
  #filled = new WeakSet();
  #turns = new Map();
  #seen;

  // `textOf(uid)` gives an answer's text as it is now.
  constructor(root, textOf) {
    this.root = root;
    this.textOf = textOf;
    this.#seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.#fetch(entry.target);
    });
  }

  // Ended answers that are in the page: their times are fetched when they come into sight.
  shown(turns) {
    for (const turn of turns) this.#turns.set(turn.uid, turn);
    for (const article of this.root.querySelectorAll("[data-turn]")) {
      const view = article.querySelector("[data-tokens-view]");
      if (view && article.dataset.state !== "streaming" && !this.#filled.has(view)) this.#seen.observe(article);
    }
  }

  start(uid) {
    const strip = this.#strip(uid);
    if (!strip) return;
    this.#filled.add(strip.view);
    strip.reset();
  }

  add(uid, marks) {
    this.#strip(uid)?.add(marks ?? []);
  }

  finish(turn) {
    this.#turns.set(turn.uid, turn);
    this.#strip(turn.uid)?.finish(turn);
  }

  #strip(uid) {
    const article = this.root.querySelector(`[data-turn="${CSS.escape(uid)}"]`);
    const view = article?.querySelector("[data-tokens-view]");
    if (!view) return null;
    const known = this.#strips.get(uid);
    if (known?.view === view) return known;
    const made = new TokenStrip(view, () => this.textOf(uid));
    this.#strips.set(uid, made);
    return made;
  }

  async #fetch(article) {
    this.#seen.unobserve(article);
    const uid = article.dataset.turn;
    const strip = this.#strip(uid);
    if (!strip || this.#filled.has(strip.view)) return;
    this.#filled.add(strip.view);
    try {
      const answer = await fetch(`/api/v1/turns/${encodeURIComponent(uid)}/timeline`);
      if (!answer.ok) throw new Error(String(answer.status));
      const { marks } = await answer.json();
      strip.add(marks);
    } catch {
      // The figures are there all the same; the times are asked for again when it is seen again.
      this.#filled.delete(strip.view);
    }
    const turn = this.#turns.get(uid);
    if (turn) strip.finish(turn);
  }
}
