// Tokens as the colours that they are now, which Plotly cannot look up by itself. Read once for each theme.
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);
let known = new Map();
document.addEventListener("themechange", () => { known = new Map(); });

export function token(name) {
  let color = known.get(name);
  if (!color) {
    probe.style.color = `var(${name})`;
    color = getComputedStyle(probe).color;
    known.set(name, color);
  }
  return color;
}

export function parts(color) {
  return color.match(/[\d.]+/g).map(Number);
}

// `share` of one token over another, as Plotly reads it.
export function mixed(name, under, share) {
  const [top, below] = [parts(token(name)), parts(token(under))];
  const [r, g, b] = [0, 1, 2].map((i) => Math.round(top[i] * share + below[i] * (1 - share)));
  return `rgb(${r}, ${g}, ${b})`;
}

export function faded(name, alpha) {
  const [r, g, b] = parts(token(name));
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

// The colours of a layout that has none.
export function paintLayout(layout) {
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
    axis.spikecolor = token("--line-firm");
  }
}
