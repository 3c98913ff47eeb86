// What every chart card does: it is drawn only while it is in sight, one card a frame, in the size it has.
import { token } from "./colors.js";
import { Glide } from "./glide.js";
import { scheduler } from "./scheduler.js";
import { axisTime, tickFormat, tickValues } from "./time.js";

const CONFIG = { displayModeBar: false, doubleClick: false, responsive: false };
const cards = new WeakMap();
const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) cards.get(entry.target)?.seen(entry.isIntersecting);
}, { rootMargin: "120px" });
const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) cards.get(entry.target)?.sized(entry.contentRect);
});

export class Card {
  #visible = false;
  #stale = true;
  #size = null;
  #revision = 0;
  #pointed = false;

  constructor(node, page) {
    this.node = node;
    this.page = page;
    this.plot = node.querySelector("[data-plot]");
    this.note = node.querySelector("[data-chart-note]");
    this.table = node.querySelector("[data-chart-rows]");
    this.cursor = node.querySelector("[data-chart-cursor]");
    this.title = node.querySelector("h3").textContent.replace(/\s+/g, " ").trim();
    this.spec = JSON.parse(document.getElementById(`${node.dataset.chart}-figure`).textContent);
    this.figure = this.spec.figure;
    this.glide = new Glide(this.plot);
    this.figure.data.forEach((trace, index) => { trace.uid = `t${index}`; });
    cards.set(this.plot, this);
    cards.set(node, this);
    sizes.observe(this.plot);
    sight.observe(node);
    document.addEventListener("themechange", () => {
      this.painted = false;
      this.ask();
    });
    // Plotly tells what is under the pointer out of its own last draw, so that one has to be the newest.
    this.plot.addEventListener("pointerenter", () => {
      this.#pointed = true;
      this.ask();
    });
    this.plot.addEventListener("pointerleave", () => { this.#pointed = false; });
    this.#tools();
  }

  get visible() {
    return this.#visible;
  }

  // The figure changed: draw when there is a frame, or when the card comes into sight.
  ask() {
    this.#stale = true;
    if (this.#visible && this.#size && !document.hidden) scheduler.ask(this);
  }

  // The axis moved on and samples may have come; a card that shows none of it has nothing to do.
  follow() {
    this.ask();
  }

  seen(visible) {
    this.#visible = visible;
    if (!visible) scheduler.drop(this);
    else if (this.#stale) this.ask();
  }

  sized({ width, height }) {
    if (!width || !height) return;
    this.#size = [Math.floor(width), Math.floor(height)];
    this.ask();
  }

  // True where Plotly drew; otherwise its last picture only moved on.
  draw() {
    if (!this.node.isConnected) return false;
    this.#stale = false;
    const painted = this.painted;
    if (!painted) this.paint();
    this.painted = true;
    const { layout } = this.figure;
    [layout.width, layout.height] = this.#size;
    this.fill();
    const whole = !painted || this.#pointed || this.held || !this.glide.move(this.figure, this.content());
    if (whole) this.#whole();
    this.drawn(whole);
    if (!this.table.hidden) this.drawTable();
    return whole;
  }

  #whole() {
    const { data, layout } = this.figure;
    this.glide.rest();
    this.#revision += 1;
    layout.datarevision = this.#revision;
    Plotly.react(this.plot, data, layout, CONFIG);
    this.glide.drawn(this.figure, this.content());
  }

  // For the subclasses: colours; figures and axis; what follows a draw; rows of the table.
  paint() {}

  fill() {}

  drawn() {}

  // What the picture shows besides layout and lines, as a string, or null; see glide.js.
  content() {
    return "";
  }

  // Whether Plotly shows figures at the pointer, which go with its own draws only.
  get held() {
    return false;
  }

  rows() {
    return { head: [], body: [] };
  }

  // The time axis from one moment to another.
  timeAxis(from, to) {
    const { xaxis, width, margin } = this.figure.layout;
    xaxis.range = [axisTime(from), axisTime(to)];
    xaxis.tickformat = tickFormat(to - from);
    xaxis.tickvals = tickValues(from, to, Math.max(1, width - margin.l - margin.r), margin.r);
  }

  say(words, stale = false) {
    if (this.note.textContent !== words) this.note.textContent = words;
    this.note.classList.toggle("is-stale", stale && Boolean(words));
  }

  #tools() {
    const toggle = this.node.querySelector("[data-chart-table]");
    toggle?.addEventListener("click", () => {
      this.table.hidden = !this.table.hidden;
      toggle.setAttribute("aria-pressed", String(!this.table.hidden));
      if (!this.table.hidden) this.drawTable();
    });
    this.node.querySelector("[data-chart-csv]")?.addEventListener("click", () => this.#csv());
    this.node.querySelector("[data-chart-png]")?.addEventListener("click", () => this.#png());
  }

  drawTable() {
    const { head, body } = this.rows();
    const table = document.createElement("table");
    table.className = "table";
    const top = table.createTHead().insertRow();
    head.forEach((name, index) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = index ? "num" : "";
      cell.textContent = name;
      top.append(cell);
    });
    const rows = table.createTBody();
    for (const line of body) {
      const row = rows.insertRow();
      line.forEach((text, index) => {
        const cell = row.insertCell();
        cell.className = index ? "num" : "";
        cell.textContent = text;
      });
    }
    this.table.replaceChildren(table);
  }

  csv() {
    return [];
  }

  #csv() {
    const cell = (value) => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
    const text = this.csv().map((line) => line.map(cell).join(",")).join("\n");
    download(`${this.node.dataset.chart}.csv`, new Blob([text], { type: "text/csv" }));
  }

  // The picture stands alone: with its title, its legend's names and the ground of the page.
  async #png() {
    const [width, height] = this.#size ?? [800, 240];
    const layout = {
      ...structuredClone({ ...this.figure.layout, datarevision: 0 }),
      title: { text: this.title, x: 0.01, xanchor: "left", font: { size: 14, color: token("--ink") } },
      paper_bgcolor: token("--surface"),
      showlegend: this.figure.data.length > 1,
      legend: { orientation: "h", y: -0.18 },
      margin: { ...this.figure.layout.margin, t: 44, b: 56 },
      width,
      height: height + 96,
    };
    const data = this.figure.data.map((trace) => ({ ...trace }));
    const picture = await Plotly.toImage({ data, layout }, { format: "png", width, height: height + 96, scale: 2 });
    download(`${this.node.dataset.chart}.png`, picture);
  }
}

function download(name, content) {
  const link = document.createElement("a");
  link.href = content instanceof Blob ? URL.createObjectURL(content) : content;
  link.download = name;
  link.click();
  if (link.href.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
