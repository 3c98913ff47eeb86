// Asks before a form or button with data-confirm acts, naming what will happen.
// data-confirm: the question; data-confirm-text: what will happen; data-confirm-yes: the button;
// data-confirm-name: a name to type first.
import { gettext, phrase } from "./words.js";

const dialog = document.getElementById("confirm");
let agreed = null;

export function confirm({ question, text, yes, name }) {
  dialog.querySelector("#confirm-title").textContent = question;
  dialog.querySelector("[data-confirm-text]").textContent = text ?? "";
  const button = dialog.querySelector("[data-confirm-yes]");
  button.textContent = yes ?? gettext("Do it");
  const typed = dialog.querySelector("[data-confirm-typed]");
  const input = typed.querySelector("input");
  typed.hidden = !name;
  input.value = "";
  button.disabled = Boolean(name);
  typed.querySelector("label").textContent = name ? phrase("Type %(name)s to confirm", { name }) : gettext("Name");
  input.oninput = () => { button.disabled = input.value.trim() !== name; };
  dialog.returnValue = "no";
  dialog.showModal();
  if (name) input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

function questionOf(node) {
  const { confirm: question, confirmText: text, confirmYes: yes, confirmName: name } = node.dataset;
  return { question, text, yes, name };
}

// In the capture phase at the document, so that it comes before htmx and before the browser.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  const asks = event.submitter?.dataset.confirm ? event.submitter : form;
  if (!asks.dataset.confirm || agreed === form) {
    agreed = null;
    return;
  }
  event.preventDefault();
  event.stopImmediatePropagation();
  const { submitter } = event;
  if (await confirm(questionOf(asks))) {
    agreed = form;
    form.requestSubmit(submitter ?? undefined);
  }
}, true);

// Enter in the name field means yes only once the name is right.
dialog?.querySelector("#confirm-name").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  const button = dialog.querySelector("[data-confirm-yes]");
  if (!button.disabled) dialog.close("yes");
});
