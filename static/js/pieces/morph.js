// Changes a region into freshly rendered HTML by touching only what differs: focus, selection, scroll positions,
// open details and running animations stay as they are. Children are matched by id or data-key, else by place.

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "";
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

function attributes(node, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  for (const { name } of [...node.attributes]) {
    if (fresh.hasAttribute(name)) continue;
    // What the person opened stays open.
    if (name === "open" && (node.localName === "details" || node.localName === "dialog")) continue;
    if (name === "data-exact") continue;
    node.removeAttribute(name);
  }
}

function element(node, fresh) {
  if (node.hasAttribute("data-morph-skip")) return;
  if (node === document.activeElement && node.matches("input, textarea, select")) return;
  attributes(node, fresh);
  // times.js has written a fresher word than the server.
  if (node.localName === "time" && node.dateTime === fresh.dateTime && node.textContent) return;
  children(node, fresh);
}

function children(node, fresh) {
  const keyed = new Map();
  const wantedKeys = new Set([...fresh.children].map(keyOf));
  for (const child of [...node.children]) {
    const key = keyOf(child);
    // What is gone goes first, so that what stays need not move: a node that moves loses the focus.
    if (key && !wantedKeys.has(key)) child.remove();
    else if (key) keyed.set(key, child);
  }
  let at = node.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const moved = key && keyed.get(key);
    if (moved && moved !== at && moved.nodeName === wanted.nodeName) {
      if (node.moveBefore) node.moveBefore(moved, at);
      else node.insertBefore(moved, at);
      element(moved, wanted);
    } else if (at && alike(at, wanted)) {
      if (at.nodeType === Node.ELEMENT_NODE) element(at, wanted);
      else if (at.nodeValue !== wanted.nodeValue) at.nodeValue = wanted.nodeValue;
      at = at.nextSibling;
    } else {
      const added = document.importNode(wanted, true);
      node.insertBefore(added, at);
      if (added.nodeType === Node.ELEMENT_NODE) globalThis.htmx?.process(added);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

export function morph(node, fresh) {
  element(node, fresh);
}
