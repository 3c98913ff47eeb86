// Moments and Plotly's axis. Plotly draws epoch milliseconds as UTC; people read their own clock.
export function axisTime(seconds) {
  return seconds * 1000 - new Date(seconds * 1000).getTimezoneOffset() * 60000;
}

// How moments are written under an axis of so many seconds: never more than one line.
export function tickFormat(seconds) {
  if (seconds <= 1800) return "%H:%M:%S";
  if (seconds <= 129600) return "%H:%M";
  return seconds <= 864000 ? "%e %b %H:%M" : "%e %b";
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
  604800, 1209600, 2592000, 7776000, 31536000];
// Letters of the longest label, "30 Nov 17:40", in the charts' 12 px; and what one needs beside it.
const LABEL_PX = 72;
const APART_PX = 92;

// Where the axis between two moments has labels: at round times of the person's clock, none across the right edge.
// `width` of the axis and `margin` beside it in pixels.
export function tickValues(from, to, width, margin) {
  const span = to - from;
  const most = Math.max(1, Math.min(6, Math.floor(width / APART_PX)));
  const last = axisTime(to) - Math.max(0, LABEL_PX / 2 - margin) / width * span * 1000;
  let place = STEPS.findIndex((seconds) => span / seconds <= most);
  if (place < 0) place = STEPS.length - 1;
  // Where no round time of that length is in sight, a finer one is.
  for (; place >= 0; place -= 1) {
    const step = STEPS[place] * 1000;
    const first = Math.ceil(axisTime(from) / step) * step;
    const count = Math.min(most, Math.floor((last - first) / step) + 1);
    if (count > 0) return Array.from({ length: count }, (_, index) => first + index * step);
  }
  return [];
}

// The other way round, from what Plotly's relayout event says: "2026-11-30 14:05:01.25", or the number we gave.
export function momentOf(axis) {
  const shown = typeof axis === "number" ? new Date(axis) : new Date(`${String(axis).replace(" ", "T")}Z`);
  const local = new Date(
    shown.getUTCFullYear(), shown.getUTCMonth(), shown.getUTCDate(),
    shown.getUTCHours(), shown.getUTCMinutes(), shown.getUTCSeconds(), shown.getUTCMilliseconds(),
  );
  return local.getTime() / 1000;
}
