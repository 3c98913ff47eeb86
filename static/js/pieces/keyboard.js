// g + letter goes, / searches, ? lists. Quiet while somebody types or a dialog is open.
const GO_WITHIN_MS = 1200;
let goSince = 0;

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]");
}

function go(letter) {
  document.querySelector(`.rail-link[data-go="${CSS.escape(letter)}"]`)?.click();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (goSince && Date.now() - goSince < GO_WITHIN_MS && /^[a-z]$/.test(event.key)) {
    goSince = 0;
    event.preventDefault();
    go(event.key);
    return;
  }
  goSince = event.key === "g" ? Date.now() : 0;
  if (event.key === "?") {
    event.preventDefault();
    document.getElementById("shortcuts").showModal();
  } else if (event.key === "/") {
    const search = document.querySelector("[data-page-search]");
    event.preventDefault();
    if (search) search.focus();
    else document.querySelector("[data-palette-open]")?.click();
  }
});

document.querySelector("[data-shortcuts-open]")?.addEventListener("click", () => {
  document.getElementById("menu-user").hidePopover();
  document.getElementById("shortcuts").showModal();
});
