// A question that is asked in other words: its text becomes a field, and what it is sent as begins a branch beside it.
import { gettext } from "../pieces/words.js";
import { element } from "./markdown.js";

function button(text, kind, onClick) {
  const made = element("button", `button button-small ${kind}`, text);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

// `send(text)` answers whether it went out; the field stays where it did not.
export function editQuestion(article, send) {
  const question = article.querySelector("[data-question]");
  const opener = article.querySelector("[data-edit]");
  if (question.hidden) return;
  const field = element("textarea", "textarea");
  field.value = question.textContent;
  field.rows = Math.min(12, field.value.split("\n").length + 1);
  field.setAttribute("aria-label", gettext("The question in other words"));
  const close = () => {
    box.remove();
    question.hidden = false;
    opener.focus();
  };
  const go = () => {
    if (field.value.trim() && send(field.value)) close();
  };
  const row = element("div", "row", button(gettext("Ask"), "button-primary", go), button(gettext("Cancel"), "button-quiet", close));
  const box = element("div", "question-edit stack-s", field, row);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      go();
    }
  });
  question.hidden = true;
  question.after(box);
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}
