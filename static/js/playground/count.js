// What the question will be to the engine, counted by the engine's own tokenizer while one types.
import { grouped } from "../pieces/format.js";
import { gettext, phrase } from "../pieces/words.js";

const PAUSE_MS = 250;

export class PromptCount {
  #timer = 0;
  #number = 0;
  #asked = null;

  // `ask(question)` sends { number, prompt, system_prompt, after } and answers whether it went out.
  constructor(node, { ask, question }) {
    this.node = node;
    this.ask = ask;
    this.question = question;
  }

  // Something that is counted may have changed.
  look({ now = false } = {}) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#send(), now ? 0 : PAUSE_MS);
  }

  #send() {
    const question = this.question();
    const key = JSON.stringify(question);
    if (key === this.#asked) return;
    this.#number += 1;
    if (this.ask({ ...question, number: this.#number })) this.#asked = key;
  }

  // An answer; one that a newer question overtook is passed over.
  told({ number, tokens, context_tokens: context }, most) {
    if (number !== this.#number) return;
    if (tokens === null) {
      this.node.textContent = "";
      this.node.classList.remove("count-full");
      return;
    }
    const count = phrase("%(n)s prompt tokens", { n: grouped(tokens) });
    if (context === null) {
      this.node.textContent = count;
      return;
    }
    const left = context - tokens;
    this.node.classList.toggle("count-full", left < 1 || (most !== null && left < most));
    this.node.textContent = left < 1
      ? `${count}, ${phrase("%(n)s too many", { n: grouped(1 - left) })}`
      : `${count}, ${phrase("room for %(n)s", { n: grouped(left) })}`;
    this.node.title = most !== null && left >= 1 && left < most
      ? phrase("The answer may have %(most)s tokens, but only %(left)s are left.", { most: grouped(most), left: grouped(left) })
      : gettext("Counted by the engine's own tokenizer.");
  }

  // After a reconnect the same is asked again.
  forget() {
    this.#asked = null;
  }
}
