// "Copy as" of one answer: its own request as curl, Python and JavaScript, written by the server.
import { copy } from "../pieces/copy.js";
import { toast } from "../pieces/toast.js";
import { gettext } from "../pieces/words.js";

export class CopyAs {
  #dialog = document.querySelector("[data-copy-as-dialog]");
  #ways = [];

  constructor(root) {
    if (!this.#dialog) return;
    root.addEventListener("click", (event) => {
      const button = event.target.closest("[data-copy-as]");
      if (button) this.#open(button.closest("[data-turn]").dataset.turn);
    });
    this.#dialog.addEventListener("click", async (event) => {
      if (event.target === this.#dialog || event.target.closest("[data-copy-as-close]")) this.#dialog.close();
      const way = event.target.closest("[data-way]");
      if (way) this.#show(way.dataset.way);
      if (event.target.closest("[data-copy-as-copy]")) await this.#copy();
    });
  }

  async #open(uid) {
    const answer = await fetch(`/api/v1/turns/${encodeURIComponent(uid)}/copy-as`);
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      toast("bad", problem.error?.message ?? problem.message ?? gettext("The request cannot be shown now."));
      return;
    }
    this.#ways = await answer.json();
    const tabs = this.#dialog.querySelector("[data-copy-as-ways]");
    tabs.replaceChildren(...this.#ways.map(({ id, name }) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.way = id;
      button.textContent = name;
      return button;
    }));
    this.#show(this.#ways[0].id);
    this.#dialog.showModal();
  }

  #show(id) {
    const way = this.#ways.find((each) => each.id === id);
    for (const button of this.#dialog.querySelectorAll("[data-way]")) {
      button.setAttribute("aria-pressed", String(button.dataset.way === id));
    }
    const code = this.#dialog.querySelector("[data-copy-as-text]");
    code.textContent = way.text;
    code.parentElement.hidden = !way.text;
    this.#dialog.querySelector("[data-copy-as-copy]").disabled = !way.text;
    this.#dialog.querySelector("[data-copy-as-note]").textContent = way.note;
  }

  async #copy() {
    const done = await copy(this.#dialog.querySelector("[data-copy-as-text]").textContent);
    toast(done ? "ok" : "bad", done ? gettext("Copied.") : gettext("The browser does not allow copying here."));
  }
}
