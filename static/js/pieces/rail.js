// Theme and rail switches; theme.js applies what they store before the next paint.
const root = document.documentElement;

function store(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // The choice then lasts as long as the page.
  }
}

document.querySelector("[data-theme-toggle]")?.addEventListener("click", () => {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  store("inflight.theme", root.dataset.theme);
  document.dispatchEvent(new CustomEvent("themechange"));
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (!root.dataset.theme) document.dispatchEvent(new CustomEvent("themechange"));
});

document.querySelector("[data-rail-toggle]")?.addEventListener("click", () => {
  const narrow = root.dataset.rail !== "narrow";
  if (narrow) root.dataset.rail = "narrow";
  else delete root.dataset.rail;
  store("inflight.rail", narrow ? "narrow" : null);
});

// A popover closes when one of its links is followed by the keyboard within the page.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[popover] a[href*='#']");
  link?.closest("[popover]").hidePopover();
});
