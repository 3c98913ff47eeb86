// The checks of a page, put into every page of the tests as window.checks.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  // A page has thousands of places and a dozen colours.
  const measured = new Map();

  function rgba(text) {
    if (!measured.has(text)) measured.set(text, measure(text));
    return measured.get(text);
  }

  function measure(text) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = "#000";
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  }

  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);

  function luminance([r, g, b]) {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  }

  function ratio(one, other) {
    const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  }

  // What is painted behind a node: its own ground over those of its ancestors, until one is opaque. `known` holds what
  // was found for others of the same look at the page.
  function ground(node, known) {
    if (!node) return [255, 255, 255, 1];
    if (!known.has(node)) {
      const color = rgba(getComputedStyle(node).backgroundColor);
      known.set(node, color[3] === 1 ? color : over(color, ground(node.parentElement, known)));
    }
    return known.get(node);
  }

  const OUT = ".visually-hidden, [disabled], [aria-disabled=true], script, style, noscript, .js-plotly-plot, option";
  const shown = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });

  // Texts below AA: 4.5, or 3 for large ones.
  function contrast() {
    const found = new Set();
    const grounds = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const words = walker.currentNode.nodeValue.trim();
      const node = walker.currentNode.parentElement;
      if (!words || !shown(node) || node.closest(OUT)) continue;
      const style = getComputedStyle(node);
      const back = ground(node, grounds);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      const seen = ratio(over(rgba(style.color), back), back);
      if (seen < (large ? 3 : 4.5)) {
        found.add(`contrast ${seen.toFixed(2)} of ${node.className || node.localName}: ${words.slice(0, 30)}`);
      }
    }
    return [...found];
  }

  // Lines of charts, borders of inputs and the focus ring need 3 against the surface.
  function lines() {
    const probe = document.createElement("span");
    document.body.append(probe);
    const color = (name) => {
      probe.style.color = `var(${name})`;
      return rgba(getComputedStyle(probe).color);
    };
    const names = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `--chart-${n}`).concat("--line-input", "--focus");
    const bad = names.filter((name) => ratio(color(name), color("--surface")) < 3);
    probe.remove();
    return bad.map((name) => `contrast of ${name} below 3`);
  }

  function overflow() {
    const root = document.documentElement;
    const wide = root.scrollWidth - root.clientWidth;
    return wide > 0 ? [`${wide} px of horizontal overflow`] : [];
  }

  const CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, [role=separator]";
  const REFERENCES = ["aria-labelledby", "aria-describedby", "aria-controls"];

  // Controls without a name, ids that occur twice, references that lead nowhere.
  function names() {
    const bad = [];
    const ids = new Map();
    for (const node of document.querySelectorAll("[id]")) ids.set(node.id, (ids.get(node.id) ?? 0) + 1);
    for (const [id, count] of ids) if (count > 1) bad.push(`id ${id} occurs ${count} times`);
    for (const label of document.querySelectorAll("label[for]")) {
      if (!ids.has(label.htmlFor)) bad.push(`label for ${label.htmlFor} leads nowhere`);
    }
    for (const node of document.querySelectorAll(CONTROLS)) {
      const label = node.labels?.[0]?.textContent.trim();
      if (!(node.ariaLabel || node.textContent.trim() || node.title || label)) bad.push(`no name: ${node.outerHTML.slice(0, 80)}`);
    }
    for (const reference of REFERENCES) {
      for (const node of document.querySelectorAll(`[${reference}]`)) {
        for (const id of node.getAttribute(reference).split(" ").filter(Boolean)) {
          if (!ids.has(id)) bad.push(`${reference} ${id} leads nowhere`);
        }
      }
    }
    if (document.querySelectorAll("h1").length !== 1) bad.push("not one h1");
    if (document.querySelectorAll("main").length !== 1) bad.push("not one main");
    return bad;
  }

  // The focused element, whether it is what is looked for, and whether a ring of 2 px shows it; a radio button's is
  // drawn by its label.
  function focus(selector) {
    const node = document.activeElement;
    if (!node || node === document.body) return null;
    const around = node.matches("input[type=radio], input[type=checkbox]") ? node.closest("label") ?? node : node;
    const ring = [node, around].map((each) => getComputedStyle(each));
    const visible = ring.some((style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2);
    return { visible, reached: node.matches(selector), what: `${node.localName} ${node.textContent.trim().slice(0, 40)}` };
  }

  let sum = 0;
  const moved = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      sum += entry.value;
      for (const { node } of entry.sources) moved.push(`${entry.value.toFixed(4)} ${node?.id || node?.className || node?.nodeName}`);
    }
  }).observe({ type: "layout-shift", buffered: true });

  window.checks = {
    problems: () => [...overflow(), ...contrast(), ...lines(), ...names()],
    focus,
    shifts: () => ({ sum, moved }),
    forget: () => { sum = 0; moved.length = 0; },
  };
})();
