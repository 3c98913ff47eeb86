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

// The other way round, from what Plotly's relayout event says: "2026-11-30 14:05:01.25", or the number we gave.
export function momentOf(axis) {
  const shown = typeof axis === "number" ? new Date(axis) : new Date(`${String(axis).replace(" ", "T")}Z`);
  const local = new Date(
    shown.getUTCFullYear(), shown.getUTCMonth(), shown.getUTCDate(),
    shown.getUTCHours(), shown.getUTCMinutes(), shown.getUTCSeconds(), shown.getUTCMilliseconds(),
  );
  return local.getTime() / 1000;
}
