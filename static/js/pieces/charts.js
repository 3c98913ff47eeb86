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

  // Bands of answers: from request to last token, with a mark at the first token.
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
      if (band.first) {
        shapes.push({ ...common, type: "line", x0: axisTime(band.first), x1: axisTime(band.first), line: { width: 1.5, dash: "dot", color: token("--accent") } });
      }
    }
    return shapes;
  }
}
