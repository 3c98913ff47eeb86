// The upper end of an axis of figures: a round number above the highest one. It stays while figures come and go beneath
// it, so that neither the axis nor the lines wobble at each sample.
const TOPS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
// Room above the highest line.
const HEADROOM = 1.02;

export function roundTop(most) {
  if (!(most > 0)) return 1;
  const wanted = most * HEADROOM;
  const size = 10 ** Math.floor(Math.log10(wanted));
  return size * (TOPS.find((top) => top * size >= wanted) ?? 10);
}

// The range of an axis between the lowest and the highest figure; it holds zero.
export function roundRange(least, most) {
  return [least < 0 ? -roundTop(-least) : 0, most > 0 || !(least < 0) ? roundTop(most) : 0];
}
