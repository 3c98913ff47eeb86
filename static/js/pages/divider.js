// The movable divider between conversation and charts: pointer, arrow keys, remembered.
const LEAST = 25;
const MOST = 75;
const STEP = 2;
const KEY = "inflight.divider";

export function startDivider(handle) {
  const grid = handle.parentElement;
  const root = document.documentElement;
  let share = Number.parseFloat(getComputedStyle(root).getPropertyValue("--divider")) || 50;

  function set(value) {
    share = Math.min(MOST, Math.max(LEAST, value));
    root.style.setProperty("--divider", `${share}%`);
    handle.setAttribute("aria-valuenow", String(Math.round(share)));
  }

  function keep() {
    try {
      localStorage.setItem(KEY, share.toFixed(1));
    } catch {
      // It then lasts as long as the page.
    }
  }

  handle.addEventListener("pointerdown", (event) => {
    handle.setPointerCapture(event.pointerId);
    const box = grid.getBoundingClientRect();
    const move = (each) => set(((each.clientX - box.left) / box.width) * 100);
    handle.addEventListener("pointermove", move);
    handle.addEventListener("lostpointercapture", () => {
      handle.removeEventListener("pointermove", move);
      keep();
    }, { once: true });
  });
  handle.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (!by) return;
    event.preventDefault();
    set(share + by);
    keep();
  });
  handle.addEventListener("dblclick", () => {
    set(50);
    keep();
  });
  set(share);
}
