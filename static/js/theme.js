// Runs before the first paint: the chosen theme and the width of the rail, as the person left them.
(() => {
  const root = document.documentElement;
  try {
    const theme = localStorage.getItem("inflight.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    if (localStorage.getItem("inflight.rail") === "narrow") root.dataset.rail = "narrow";
    const divider = Number(localStorage.getItem("inflight.divider"));
    if (divider >= 25 && divider <= 75) root.style.setProperty("--divider", `${divider}%`);
  } catch {
    // Storage may be refused; the defaults hold.
  }
})();
