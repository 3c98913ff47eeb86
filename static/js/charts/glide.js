// Between two draws of Plotly a chart over time mostly just moves on: the same axis, labels and marks a little further to
// the left, and lines that have grown. That is done here in the picture that Plotly made: its layers are shifted, and the
// lines written anew. Plotly works out and compares the whole figure at each draw, which takes ten times as long and makes
// ever more of its thousands of functions hot. Whatever else changes is Plotly's to draw.

// What moves with the time axis, in the classes of the vendored Plotly; tests/browser/test_charts.py compares the picture
// with the one that Plotly draws of the same figure.
const LAYERS = ".gridlayer > .x, .xaxislayer-above, .shapelayer, .heatmaplayer";
const NOTHING = "M0,0";

export class Glide {
  #plot;
  #key = null;
  #from = 0;
  #layers = [];
  #lines = [];

  constructor(plot) {
    this.#plot = plot;
  }

  // Before Plotly draws: its layers stand where it left them.
  rest() {
    for (const layer of this.#layers) layer.removeAttribute("transform");
    this.#key = null;
  }

  // Plotly has drawn the figure. `more` is what the picture shows besides layout and lines, as a string; null where it has
  // no time axis.
  drawn(figure, more) {
    if (more === null) return;
    this.#key = keyOf(figure, more);
    [this.#from] = figure.layout.xaxis.range;
    this.#layers = [...this.#plot.querySelectorAll(LAYERS)];
    this.#lines = figure.data.map(({ uid }) => [...this.#plot.querySelectorAll(`.scatterlayer .trace${uid} .js-line`)]);
  }

  // Makes the picture that of the figure; false where Plotly has to draw it.
  move(figure, more) {
    if (this.#key === null || this.#key !== keyOf(figure, more)) return false;
    const { data, layout } = figure;
    const { width, height, margin, xaxis } = layout;
    const [from, to] = xaxis.range;
    const across = (width - margin.l - margin.r) / (to - from);
    for (let index = 0; index < data.length; index += 1) {
      const trace = data[index];
      if (trace.type !== "scatter" || trace.visible === false) continue;
      if (trace.mode !== "lines") return false;
      const axis = layout[`yaxis${trace.yaxis.slice(1)}`];
      const up = (height - margin.t - margin.b) * (axis.domain[1] - axis.domain[0]);
      const text = pathOf(trace.x, trace.y, from, across, axis.range, up);
      // Plotly makes a path for each stretch between gaps; here the first one is all of them.
      const [path, ...others] = this.#lines[index];
      if (!path && text) return false;
      path?.setAttribute("d", text || NOTHING);
      for (const other of others) other.setAttribute("d", NOTHING);
      if (others.length) this.#lines[index] = [path];
    }
    const shift = `translate(${round((this.#from - from) * across)},0)`;
    for (const layer of this.#layers) layer.setAttribute("transform", shift);
    return true;
  }
}

// Everything that a picture shows but the place of its time axis and the points of its lines.
function keyOf({ data, layout }, more) {
  const { xaxis, shapes, width, height } = layout;
  const scales = [];
  for (const name of Object.keys(layout)) if (name.startsWith("yaxis")) scales.push(layout[name].range);
  const lines = data.map(({ visible, mode }) => `${visible} ${mode}`);
  return JSON.stringify([
    width, height, Math.round(xaxis.range[1] - xaxis.range[0]), xaxis.tickformat, xaxis.tickvals, shapes, scales, lines, more,
  ]);
}

function round(pixels) {
  return Math.round(pixels * 100) / 100;
}

function pathOf(x, y, from, across, [low, high], up) {
  const each = up / (high - low);
  let text = "";
  let pen = "M";
  for (let row = 0; row < y.length; row += 1) {
    const value = y[row];
    if (Number.isNaN(value)) {
      pen = "M";
      continue;
    }
    text += `${pen}${round((x[row] - from) * across)},${round((high - value) * each)}`;
    pen = "L";
  }
  return text;
}
