// What stands beside and under the answers of a conversation: token views, marks on the live charts, background load,
// copy as. The page tells it of turns as its socket does:
//
//   const beside = new Beside(root, turns, (uid) => text);   beside.started(turn);   beside.delta(uid, { at, marks });
//   beside.finished(turn);   beside.shown(turns);   // another branch is shown
import { LiveChart } from "../pieces/charts.js";
import { BackgroundKnob } from "./background.js";
import { CopyAs } from "./copy_as.js";
import { TokenViews } from "./token_views.js";

export class Beside {
  #bands = new Map();

  constructor(root, turns, textOf) {
    // An external server has no charts.
    const chart = root.querySelector("[data-chart]");
    this.chart = chart && new LiveChart(chart);
    this.views = new TokenViews(root, textOf);
    const knob = root.querySelector("[data-busy]");
    if (knob) new BackgroundKnob(knob);
    new CopyAs(root);
    this.shown(turns);
  }

  started(turn) {
    this.#band(turn);
    this.views.start(turn.uid);
    this.#mark();
  }

  // An answer that was under way when the page was drawn: it comes again from its beginning.
  again(uid) {
    const band = this.#bands.get(uid);
    if (band) band.first = null;
    this.views.start(uid);
  }

  // Returns milliseconds to the first token where this delta brought it, else null.
  delta(uid, { at, marks }) {
    this.views.add(uid, marks);
    const band = this.#bands.get(uid);
    if (!band || band.first) return null;
    band.first = at;
    this.#mark();
    return (at - band.start) * 1000;
  }

  // Epoch seconds at which the first token of an answer came, null where none has come.
  firstAt(uid) {
    return this.#bands.get(uid)?.first ?? null;
  }

  finished(turn) {
    this.#band(turn);
    this.views.finish(turn);
    this.#mark();
  }

  shown(turns) {
    for (const turn of turns) this.#band(turn);
    this.views.shown(turns);
    this.#mark();
  }

  #band(turn) {
    this.#bands.set(turn.uid, {
      start: turn.started_at,
      first: turn.first_token_at,
      end: turn.finished_at,
      stopped: ["stopped", "interrupted", "failed"].includes(turn.state),
    });
  }

  #mark() {
    this.chart?.setBands([...this.#bands.values()]);
  }
}
