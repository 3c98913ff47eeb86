// Toasts: good news leaves by itself, a refusal stays until it is closed.
import { gettext } from "./words.js";

const box = document.querySelector("[data-toasts]");
const KEPT_MS = 6000;

function icon(index) {
  return document.getElementById("icons").content.children[index].cloneNode(true);
}

function retire(node) {
  let timer = setTimeout(() => node.remove(), KEPT_MS);
  node.addEventListener("pointerenter", () => clearTimeout(timer));
  node.addEventListener("focusin", () => clearTimeout(timer));
  node.addEventListener("pointerleave", () => { timer = setTimeout(() => node.remove(), KEPT_MS); });
}

export function toast(tone, text, more = "") {
  const node = document.createElement("div");
  node.className = `toast toast-${tone}`;
  const words = document.createElement("div");
  words.append(text);
  if (more) {
    const small = document.createElement("small");
    small.append(more);
    words.append(small);
  }
  const close = document.createElement("button");
  close.type = "button";
  close.className = "button button-quiet button-small button-icon";
  close.setAttribute("aria-label", gettext("Close"));
  close.dataset.toastClose = "";
  close.append(icon(2));
  node.append(icon(tone === "ok" ? 0 : 1), words, close);
  box.append(node);
  if (tone === "ok") retire(node);
}

box?.addEventListener("click", (event) => {
  if (event.target.closest("[data-toast-close]")) event.target.closest(".toast").remove();
});
for (const node of box?.querySelectorAll(".toast-ok") ?? []) retire(node);

// Views answer actions with an HX-Trigger header; apps/dashboard/pages.py writes it.
document.body.addEventListener("toast", (event) => {
  const { tone, text, more } = event.detail;
  toast(tone, text, more);
});
document.body.addEventListener("htmx:sendError", () => {
  toast("bad", gettext("The server did not answer."), gettext("Look whether it runs, then try again."));
});
document.body.addEventListener("htmx:responseError", (event) => {
  const { xhr } = event.detail;
  if (xhr.getResponseHeader("HX-Trigger")) return;
  toast("bad", gettext("The server refused this."), `HTTP ${xhr.status}`);
});
