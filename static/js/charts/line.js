// Line charts over the shared time axis: one trace for each line, and a dashed one for the compared period.
import { ABSENT, clock, significant } from "../pieces/format.js";
import { gettext, phrase } from "../pieces/words.js";
import { Card } from "./card.js";
import { faded, paintLayout, token } from "./colors.js";
import { roundRange } from "./scale.js";
import { momentOf } from "./time.js";

const STALE_SECONDS = 5;
const TABLE_ROWS = 120;

export class LineChart extends Card {
  #hidden = new Set();
  #buffers = [];
  #bound = false;
  #hover = null;
  #scales = [];

  constructor(node, page) {
    super(node, page);
    this.lines = this.spec.lines;
    this.keys = [...node.querySelectorAll("[data-chart-legend] [data-trace]")];
    if (page.compare) {
      for (const index of this.lines.keys()) {
        const like = this.figure.data[index];
        const name = phrase("%(name)s, earlier", { name: like.name });
        const hovertemplate = `${like.hovertemplate.split("<extra>")[0]}<extra>${name}</extra>`;
        const uid = `t${this.figure.data.length}`;
        this.figure.data.push({ ...like, uid, line: { width: 1.25, dash: "dash" }, name, hovertemplate });
      }
    }
    // Those that the server gives no range of.
    for (const [name, axis] of Object.entries(this.figure.layout)) {
      if (name.startsWith("yaxis") && !axis.range) this.#scales.push({ axis, trace: `y${name.slice(5)}`, extent: [0, 0] });
    }
    for (const button of this.keys) {
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        if (on) this.#hidden.delete(Number(button.dataset.trace));
        else this.#hidden.add(Number(button.dataset.trace));
        this.ask();
      });
    }
  }

  paint() {
    paintLayout(this.figure.layout);
    const fine = matchMedia("(pointer: fine)").matches;
    this.figure.layout.dragmode = this.page.zooms && fine ? "zoom" : false;
    this.figure.layout.xaxis.fixedrange = !(this.page.zooms && fine);
    this.figure.data.forEach((trace, index) => {
      const { color } = this.lines[index % this.lines.length];
      trace.line = { ...trace.line, color: index < this.lines.length ? token(color) : faded(color, 0.75) };
    });
  }

  fill() {
    const [from, to] = this.page.view.range();
    const { layout } = this.figure;
    this.timeAxis(from, to);
    layout.shapes = [...this.page.marks.shapes(from, to), ...(this.bands?.(from, to) ?? [])];
    for (const { extent } of this.#scales) extent.fill(0);
    this.#put(this.page.series, 0, from, to);
    if (this.page.compare) this.#put(this.page.compare, this.lines.length, from, to);
    for (const { axis, extent } of this.#scales) axis.range = roundRange(extent[0], extent[1]);
  }

  #put(series, offset, from, to) {
    const [first, end] = series.rows.within(from, to);
    const x = series.rows.axis.subarray(first, end);
    this.lines.forEach((line, index) => {
      const place = offset + index;
      let buffer = this.#buffers[place];
      if (!buffer || buffer.length < end - first) buffer = this.#buffers[place] = new Float64Array(series.rows.at.length);
      const trace = this.figure.data[place];
      trace.visible = !this.#hidden.has(index);
      const scale = trace.visible ? this.#scales.find((each) => each.trace === trace.yaxis) : null;
      series.read(line, first, end, buffer, scale?.extent ?? [0, 0]);
      trace.x = x;
      trace.y = buffer.subarray(0, end - first);
      // A step between two gaps is no line: it shows as a dot.
      trace.mode = line.marked || end - first <= 2 ? "lines+markers" : "lines";
    });
  }

  get held() {
    return this.#hover !== null;
  }

  drawn(whole) {
    if (!this.#bound) this.#bind();
    this.tell();
    if (this.#hover && whole) Plotly.Fx.hover(this.plot, this.#hover);
  }

  #bind() {
    this.#bound = true;
    this.plot.on("plotly_relayout", (change) => {
      const from = change["xaxis.range[0]"];
      if (from === undefined) return;
      this.page.view.show([momentOf(from), momentOf(change["xaxis.range[1]"])]);
    });
    this.plot.on("plotly_doubleclick", () => this.page.view.show(null));
    // A redraw takes the label away; the pointer that stands still gets it back.
    this.plot.addEventListener("mousemove", (event) => {
      this.#hover = { clientX: event.clientX, clientY: event.clientY, target: event.target };
      this.page.point?.(this.#moment(event.clientX));
    });
    this.plot.addEventListener("mouseleave", () => {
      this.#hover = null;
      this.page.point?.(null);
    });
  }

  #moment(clientX) {
    const { l, r } = this.figure.layout.margin;
    const { left, width } = this.plot.getBoundingClientRect();
    const share = (clientX - left - l) / (width - l - r);
    if (share < 0 || share > 1) return null;
    const [from, to] = this.page.view.range();
    return from + share * (to - from);
  }

  // The line at the moment that the pointer shows in any chart.
  point(moment) {
    if (!this.cursor) return;
    this.cursor.hidden = moment === null || !this.visible;
    if (this.cursor.hidden) return;
    const { l, r } = this.figure.layout.margin;
    const [from, to] = this.page.view.range();
    this.cursor.style.left = `calc(${l}px + (100% - ${l + r}px) * ${((moment - from) / (to - from)).toFixed(5)})`;
  }

  // Newest values in the legend, and since when nothing comes.
  tell() {
    const { series, view } = this.page;
    const last = series.newest;
    const behind = view.moving && view.now() - last > STALE_SECONDS + series.step;
    const row = series.rows.length - 1;
    for (const button of this.keys) {
      const value = behind || row < 0 ? NaN : series.value(this.lines[Number(button.dataset.trace)], row);
      const shown = Number.isNaN(value) ? ABSENT : significant(value);
      const node = button.querySelector("[data-value]");
      if (node.textContent !== shown) node.textContent = shown;
    }
    if (!this.lines.length) return;
    if (!last) this.say(gettext("No samples yet."), true);
    else if (behind && this.page.live) this.say(phrase("No samples since %(at)s.", { at: clock(last) }), true);
    else this.say(this.#knows() ? "" : gettext("No values in this time."));
  }

  #knows() {
    return this.figure.data.some((trace) => trace.y.some((value) => !Number.isNaN(value)));
  }

  #shown() {
    const { series, view } = this.page;
    const [from, to] = view.range();
    const [first, end] = series.rows.within(from, to);
    return Array.from({ length: end - first }, (_, index) => first + index);
  }

  rows() {
    const { series } = this.page;
    const text = (value) => (Number.isNaN(value) ? ABSENT : significant(value));
    const rows = this.#shown().slice(-TABLE_ROWS).reverse();
    const when = series.step >= 60 ? (at) => new Date(at * 1000).toLocaleString() : clock;
    return {
      head: [gettext("Time"), ...this.lines.map((line) => line.name)],
      body: rows.map((row) => [when(series.rows.at[row]), ...this.lines.map((line) => text(series.value(line, row)))]),
    };
  }

  csv() {
    const { series } = this.page;
    const head = ["at", ...this.lines.map(({ key, per }) => (per ? `${key || 1}/${per}` : key))];
    const value = (number) => (Number.isNaN(number) ? "" : String(Number(number.toPrecision(8))));
    const body = this.#shown().map((row) => [
      new Date(series.rows.at[row] * 1000).toISOString(),
      ...this.lines.map((line) => value(series.value(line, row))),
    ]);
    return [head, ...body];
  }
}
