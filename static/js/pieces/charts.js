// One card of charts that stands alone with its own figures: the one beside a conversation.
import { token } from "../charts/colors.js";
import { ChartPage } from "../charts/page.js";
import { axisTime } from "../charts/time.js";

export class LiveChart {
  #bands = [];

  constructor(card) {
    const { page } = JSON.parse(document.getElementById(`${card.dataset.chart}-figure`).textContent);
    this.page = new ChartPage(page, { root: card.parentElement, zooms: false });
    [this.chart] = this.page.cards;
    this.chart.bands = (from, to) => this.#shapes(from, to);
  }

  // Bands of answers: from request to last token, with marks at the first token and at the end; an end that was no
  // natural one (`stopped`) has a mark of its own.
  setBands(bands) {
    this.#bands = bands;
    this.chart.ask();
  }

  #shapes(from, to) {
    const shapes = [];
    for (const band of this.#bands) {
      const end = band.end ?? to;
      if (end < from) continue;
      const common = { xref: "x", yref: "paper", y0: 0, y1: 1, layer: "below" };
      shapes.push({ ...common, type: "rect", x0: axisTime(band.start), x1: axisTime(end), fillcolor: token("--band"), line: { width: 1, color: token("--band") } });
      const mark = (at, line) => shapes.push({ ...common, type: "line", x0: axisTime(at), x1: axisTime(at), line });
      if (band.first) mark(band.first, { width: 1.5, dash: "dot", color: token("--accent") });
      if (band.end && band.stopped) mark(band.end, { width: 1.5, dash: "dash", color: token("--warn") });
      else if (band.end) mark(band.end, { width: 1, color: token("--ink-3") });
    }
    return shapes;
  }
}
