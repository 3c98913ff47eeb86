// Live charts. The figure comes drawn from apps/dashboard/charts.py; samples extend it. No value is made up here:
// a missing second is a null, and with no samples at all the axis moves on over a gap and the card says since when.
import { live } from "../realtime/socket.js";
import { ABSENT, clock, significant } from "./format.js";
import { gettext, phrase } from "./words.js";

const EVERY_MS = 1000;
const STALE_SECONDS = 5;
const TABLE_ROWS = 120;
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

// A token as the colour that it is now, which Plotly cannot look up by itself.
export function token(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// Plotly draws epoch milliseconds as UTC; people read their own clock.
export function axisTime(seconds) {
  return seconds * 1000 - new Date(seconds * 1000).getTimezoneOffset() * 60000;
}

function download(name, content, type) {
  const link = document.createElement("a");
  link.href = content instanceof Blob || type ? URL.createObjectURL(new Blob([content], { type })) : content;
  link.download = name;
  link.click();
  if (link.href.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export class LiveChart {
  #pending = [];
  #rows = [];
  #step = null;
  #bands = [];
  #resize = 0;

  constructor(card) {
    this.card = card;
    this.plot = card.querySelector("[data-plot]");
    this.note = card.querySelector("[data-chart-note]");
    this.spec = JSON.parse(document.getElementById(`${card.dataset.chart}-figure`).textContent);
    this.skew = Date.now() / 1000 - this.spec.now;
    this.#rows = this.spec.rows;
    this.#build();
    this.#listen();
    if (this.spec.topic) {
      live.subscribe(this.spec.topic, { samples: (list) => this.add(list) }, { since: this.#lastAt() || this.spec.now - this.spec.window });
    }
    document.addEventListener("themechange", () => this.#theme());
    new ResizeObserver(() => {
      this.#resize ||= requestAnimationFrame(() => {
        this.#resize = 0;
        if (this.plot.offsetWidth) Plotly.Plots.resize(this.plot);
      });
    }).observe(this.plot);
    setInterval(() => this.#tick(), EVERY_MS);
  }

  #lastAt() {
    return this.#rows.length ? this.#rows[this.#rows.length - 1][0] : 0;
  }

  now() {
    return Date.now() / 1000 - this.skew;
  }

  #build() {
    const { figure } = this.spec;
    const x = this.#rows.map((row) => axisTime(row[0]));
    figure.data.forEach((trace, index) => {
      trace.x = x.slice();
      trace.y = this.#rows.map((row) => row[index + 1]);
    });
    this.#paint(figure.data, figure.layout);
    this.#range(figure.layout);
    Plotly.newPlot(this.plot, figure.data, figure.layout, { displayModeBar: false, doubleClick: false });
    this.#say();
  }

  #paint(data, layout) {
    data.forEach((trace, index) => {
      const color = token(this.spec.colors[index]);
      trace.line = { ...trace.line, color };
    });
    layout.font = { ...layout.font, color: token("--ink-2"), family: getComputedStyle(document.body).fontFamily };
    layout.paper_bgcolor = "rgba(0,0,0,0)";
    layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.hoverlabel = { bgcolor: token("--surface"), bordercolor: token("--line-firm"), font: { color: token("--ink") } };
    for (const [name, axis] of Object.entries(layout)) {
      if (!/^[xy]axis/.test(name)) continue;
      axis.gridcolor = token("--chart-grid");
      axis.linecolor = token("--line-firm");
      axis.zerolinecolor = token("--chart-grid");
      axis.tickcolor = token("--line-firm");
    }
    layout.shapes = this.#shapes();
  }

  #theme() {
    this.#paint(this.plot.data, this.plot.layout);
    Plotly.redraw(this.plot);
  }

  #range(layout) {
    const end = this.now();
    for (const [name, axis] of Object.entries(layout)) {
      if (name.startsWith("xaxis")) axis.range = [axisTime(end - this.spec.window), axisTime(end)];
    }
  }

  // Bands of answers: from request to last token, with a mark at the first token.
  setBands(bands) {
    this.#bands = bands;
  }

  #shapes() {
    const now = this.now();
    const from = now - this.spec.window;
    const shapes = [];
    for (const band of this.#bands) {
      const end = band.end ?? now;
      if (end < from) continue;
      const common = { xref: "x", yref: "paper", y0: 0, y1: 1, layer: "below" };
      shapes.push({ ...common, type: "rect", x0: axisTime(band.start), x1: axisTime(end), fillcolor: token("--band"), line: { width: 1, color: token("--band") } });
      if (band.first) {
        shapes.push({ ...common, type: "line", x0: axisTime(band.first), x1: axisTime(band.first), line: { width: 1.5, dash: "dot", color: token("--accent") } });
      }
    }
    return shapes;
  }

  add(samples) {
    for (const sample of samples) {
      const row = [sample.at, ...this.spec.keys.map((key, i) => scaled(sample[key], this.spec.scales[i]))];
      if (this.spec.step > 1) this.#collect(row);
      else this.#push(row);
    }
    const most = this.spec.max_points;
    if (this.#pending.length > most) this.#pending.splice(0, this.#pending.length - most);
  }

  // Longer windows show the mean of each step, as their first figure does.
  #collect(row) {
    const step = Math.floor(row[0] / this.spec.step);
    if (this.#step && this.#step.number !== step) {
      this.#push(this.#step.rows[0].map((_, i) => mean(this.#step.rows.map((each) => each[i]))));
      this.#step = null;
    }
    this.#step ??= { number: step, rows: [] };
    this.#step.rows.push(row);
  }

  #push(row) {
    const last = this.#pending.length ? this.#pending[this.#pending.length - 1][0] : this.#lastAt();
    if (row[0] <= last) return;
    if (last && row[0] - last > this.spec.step * 1.8) {
      this.#pending.push([last + this.spec.step, ...this.spec.keys.map(() => null)]);
    }
    this.#pending.push(row);
  }

  #tick() {
    if (document.hidden || !this.plot.isConnected) return;
    this.#range(this.plot.layout);
    this.plot.layout.shapes = this.#shapes();
    const rows = this.#pending;
    this.#pending = [];
    if (rows.length) {
      this.#rows.push(...rows);
      this.#rows.splice(0, Math.max(0, this.#rows.length - this.spec.max_points));
      const x = rows.map((row) => axisTime(row[0]));
      const indices = this.spec.keys.map((_, index) => index);
      const update = { x: indices.map(() => x), y: indices.map((index) => rows.map((row) => row[index + 1])) };
      Plotly.extendTraces(this.plot, update, indices, this.spec.max_points);
    } else {
      Plotly.redraw(this.plot);
    }
    this.#say();
    if (this.table && !this.table.hidden) this.#drawTable();
  }

  #say() {
    const last = this.#lastAt();
    const stale = this.now() - last > STALE_SECONDS + this.spec.step;
    this.card.querySelectorAll("[data-chart-legend] [data-trace]").forEach((button) => {
      const row = this.#rows[this.#rows.length - 1];
      const value = stale || !row ? null : row[Number(button.dataset.trace) + 1];
      const shown = value === null || value === undefined ? ABSENT : significant(value);
      const node = button.querySelector("[data-value]");
      if (node.textContent !== shown) node.textContent = shown;
    });
    let words = "";
    if (stale && this.spec.topic) {
      words = last ? phrase("No samples since %(at)s.", { at: clock(last) }) : gettext("No samples yet.");
    }
    if (this.note.textContent !== words) this.note.textContent = words;
    this.note.classList.toggle("is-stale", Boolean(words));
  }

  #listen() {
    this.card.querySelectorAll("[data-chart-legend] [data-trace]").forEach((button) => {
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        Plotly.restyle(this.plot, { visible: on }, [Number(button.dataset.trace)]);
      });
    });
    this.table = this.card.querySelector("[data-chart-rows]");
    const toggle = this.card.querySelector("[data-chart-table]");
    toggle.addEventListener("click", () => {
      this.table.hidden = !this.table.hidden;
      toggle.setAttribute("aria-pressed", String(!this.table.hidden));
      if (!this.table.hidden) this.#drawTable();
    });
    const name = this.card.dataset.chart;
    this.card.querySelector("[data-chart-csv]").addEventListener("click", () => {
      const head = ["at", ...this.spec.keys].join(",");
      const lines = this.#rows.map((row) => [new Date(row[0] * 1000).toISOString(), ...row.slice(1).map((v) => v ?? "")].join(","));
      download(`${name}.csv`, [head, ...lines].join("\n"), "text/csv");
    });
    this.card.querySelector("[data-chart-png]").addEventListener("click", async () => {
      const box = this.plot.getBoundingClientRect();
      download(`${name}.png`, await Plotly.toImage(this.plot, { format: "png", width: box.width, height: box.height, scale: 2 }));
    });
  }

  #drawTable() {
    const table = document.createElement("table");
    table.className = "table";
    const head = table.createTHead().insertRow();
    for (const name of [gettext("Time"), ...this.spec.names]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = head.cells.length ? "num" : "";
      cell.textContent = name;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const row of this.#rows.slice(-TABLE_ROWS).reverse()) {
      const line = body.insertRow();
      line.insertCell().textContent = clock(row[0]);
      for (const value of row.slice(1)) {
        const cell = line.insertCell();
        cell.className = "num";
        cell.textContent = value === null ? ABSENT : significant(value);
      }
    }
    this.table.replaceChildren(table);
  }
}

function scaled(value, scale) {
  return value === null || value === undefined ? null : value * scale;
}

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}
