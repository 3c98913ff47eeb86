// How often each batch size was executed, in per cent of all engine steps, with the sizes that the profile prefers.
import { grouped, significant } from "../pieces/format.js";
import { gettext, phrase } from "../pieces/words.js";
import { Card } from "./card.js";
import { paintLayout, token } from "./colors.js";

export class Bars extends Card {
  constructor(node, page) {
    super(node, page);
    this.bars = this.spec.bars;
  }

  take(bars) {
    this.bars = bars;
    this.painted = false;
    this.ask();
  }

  // Samples carry no batch sizes, and there is no time axis.
  follow() {}

  paint() {
    paintLayout(this.figure.layout);
    const wanted = new Set(this.bars.preferred);
    this.figure.data[0].marker = {
      color: this.bars.labels.map((_, index) => token(wanted.has(index) ? "--chart-3" : "--chart-1")),
    };
    const { most, layout } = { most: this.bars.most, layout: this.figure.layout };
    layout.shapes = most === null ? [] : [{
      type: "line", xref: "x", yref: "paper", x0: most, x1: most, y0: 0, y1: 1, layer: "below",
      line: { width: 1.5, dash: "dot", color: token("--chart-8") },
      label: { text: this.bars.most_label, textposition: "end", textangle: 0, xanchor: "right", yanchor: "top", font: { size: 11, color: token("--ink-2") } },
    }];
  }

  // No time axis that moves: Plotly draws.
  content() {
    return null;
  }

  fill() {
    const [trace] = this.figure.data;
    const { labels, shares, steps } = this.bars;
    trace.x = labels;
    trace.y = shares;
    this.figure.layout.xaxis.range = [-0.6, Math.max(labels.length, 1) - 0.4];
    this.say(steps ? phrase("%(count)s steps", { count: grouped(Math.round(steps)) }) : gettext("No steps in this time."));
  }

  rows() {
    const { labels, shares } = this.bars;
    return {
      head: [gettext("Batch size"), gettext("Share of steps (%)")],
      body: labels.map((label, index) => [label, significant(shares[index])]),
    };
  }

  csv() {
    const { labels, shares } = this.bars;
    return [["batch_size", "share_percent"], ...labels.map((label, index) => [label, shares[index]])];
  }
}
