// One answer in the document: what the model thought, folded, and its text as Markdown or as it came.
import { gettext } from "../pieces/words.js";
import { Markdown, element } from "./markdown.js";
import { split } from "./thinking.js";

export class Answer {
  #box;
  #markdown;
  #body;
  #thought = null;
  #shownThought = "";
  #shownAnswer = "";
  #plain = false;
  #ended = false;
  text = "";

  constructor(box) {
    this.#box = box;
    this.#begin();
  }

  #begin() {
    this.#body = element("div", this.#plain ? "as-came" : "markdown");
    this.#markdown = this.#plain ? null : new Markdown(this.#body);
    this.#shownThought = this.#shownAnswer = "";
    this.#thought = null;
    this.#box.replaceChildren(this.#body);
  }

  append(text) {
    this.text += text;
  }

  // The whole text, where it is not what came piece by piece.
  end(text) {
    if (text !== this.text) {
      this.text = text;
      this.#begin();
    }
    this.#ended = true;
    this.draw(true);
  }

  // Show Markdown as the letters that came, or as it reads.
  asText(plain) {
    if (plain === this.#plain) return;
    this.#plain = plain;
    this.#begin();
    this.draw(true);
  }

  // Once a frame; whether everything that came is in the document.
  draw(whole = false) {
    const now = performance.now();
    if (this.#plain) {
      this.#grow(this.#body, this.text, this.#shownAnswer);
      this.#shownAnswer = this.text;
      return true;
    }
    const { thought, answer, open } = split(this.text, this.#ended);
    if (!answer.startsWith(this.#shownAnswer) || (thought === null && this.#thought)) this.#begin();
    if (thought !== null) this.#think(thought, open);
    this.#markdown.append(answer.slice(this.#shownAnswer.length));
    this.#shownAnswer = answer;
    return this.#markdown.draw({ now, whole });
  }

  #think(thought, open) {
    if (!this.#thought) {
      const text = element("div", "as-came");
      this.#thought = { fold: element("details", "thought", element("summary"), text), text };
      this.#box.prepend(this.#thought.fold);
    }
    const { fold, text } = this.#thought;
    const word = open ? gettext("Thinking") : gettext("Thought before it answered");
    if (fold.firstChild.textContent !== word) fold.firstChild.textContent = word;
    fold.toggleAttribute("data-busy", open);
    this.#grow(text, thought, this.#shownThought);
    this.#shownThought = thought;
  }

  #grow(node, text, shown) {
    if (text === shown) return;
    if (shown && text.startsWith(shown) && node.firstChild) node.firstChild.appendData(text.slice(shown.length));
    else node.textContent = text;
  }
}
