// What happened meanwhile, on the time axis: roll-outs and restarts. The page's list of them is the only source; it is
// kept up to date as a live region, so a mark appears in the list and in every chart.
import { token } from "./colors.js";
import { axisTime } from "./time.js";

const TONES = { ok: "--ok", busy: "--busy", warn: "--warn", bad: "--bad", idle: "--idle" };

// Part of the axis that a label takes.
const LABEL_SHARE = 0.06;

export class Marks {
  #found = [];

  constructor(root = document) {
    this.root = root;
    this.read();
  }

  // True where the list changed.
  read() {
    const found = [...this.root.querySelectorAll("[data-mark]")].map((node) => ({
      at: Number(node.dataset.mark), tone: node.dataset.tone, label: node.dataset.label,
    }));
    const changed = JSON.stringify(found) !== JSON.stringify(this.#found);
    this.#found = found;
    return changed;
  }

  shapes(from, to) {
    const shown = this.#found.filter(({ at }) => at >= from && at <= to).sort((one, other) => one.at - other.at);
    // Of marks that lie close together the last one keeps its letters; all are in the list.
    const close = (to - from) * LABEL_SHARE;
    return shown.map(({ at, tone, label }, index) => ({
      type: "line", xref: "x", yref: "paper", x0: axisTime(at), x1: axisTime(at), y0: 0, y1: 1, layer: "below",
      line: { width: 1.25, dash: "dot", color: token(TONES[tone] ?? "--idle") },
      label: { text: shown[index + 1]?.at - at < close ? "" : label, textposition: "end", textangle: 0, xanchor: "left", yanchor: "top", font: { size: 10, color: token("--ink-2") } },
    }));
  }
}
