// Words in the person's language; the catalogue is loaded before any module (see frame.html).
export function gettext(text) {
  return globalThis.gettext ? globalThis.gettext(text) : text;
}

// gettext with %(name)s filled in.
export function phrase(text, values) {
  return gettext(text).replace(/%\((\w+)\)s/g, (whole, name) => (name in values ? String(values[name]) : whole));
}
