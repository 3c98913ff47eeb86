// The strip's twin: the same arrivals as a table, a page at a time, drawn while it is open.
import { grouped, significant } from "../pieces/format.js";
import { gettext, phrase } from "../pieces/words.js";
import { alternatives, visible } from "./token_words.js";

const ROWS = 100;

export class TokenTable {
  #from = 0;

  constructor(box, strip) {
    this.box = box;
    this.strip = strip;
    this.box.addEventListener("click", (event) => {
      const button = event.target.closest("[data-rows]");
      if (!button) return;
      this.#from = Math.max(0, this.#from + Number(button.dataset.rows));
      this.show();
    });
  }

  show() {
    const details = this.box.closest("details");
    if (!details.open) {
      this.box.replaceChildren();
      return;
    }
    const { length } = this.strip.timeline;
    if (!length) {
      const none = document.createElement("p");
      none.className = "empty-line";
      none.textContent = gettext("When its tokens came is not known.");
      this.box.replaceChildren(none);
      return;
    }
    this.#from = Math.min(this.#from, Math.floor((length - 1) / ROWS) * ROWS);
    const facts = [];
    for (let index = this.#from; index < Math.min(length, this.#from + ROWS); index += 1) facts.push(this.strip.fact(index));
    this.box.replaceChildren(this.#table(facts), ...this.#pages(length));
  }

  #table(facts) {
    const chances = facts.some((fact) => fact.chances.length);
    const heads = [gettext("Token"), gettext("Text"), gettext("At ms"), gettext("After ms")];
    if (chances) heads.push(gettext("Log-probability"), gettext("Likeliest"));
    const table = document.createElement("table");
    table.className = "table tokens-table";
    const head = table.createTHead().insertRow();
    heads.forEach((text, place) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      if (place !== 1 && place < 5) cell.className = "num";
      head.append(cell);
    });
    const body = table.createTBody();
    for (const fact of facts) {
      const row = body.insertRow();
      if (fact.stall) row.className = "tokens-stall";
      const cells = [fact.number, visible(fact.text), significant(fact.at), significant(fact.gap)];
      if (fact.stall) cells[3] += ` (${gettext("stall")})`;
      if (chances) {
        const value = fact.chances[0]?.logprob;
        cells.push(value === null || value === undefined ? "" : value.toFixed(3), alternatives(fact));
      }
      cells.forEach((text, place) => {
        const cell = row.insertCell();
        cell.textContent = text;
        cell.className = place === 1 ? "mono" : place < 5 ? "num" : "";
      });
    }
    const wrap = document.createElement("div");
    wrap.className = "table-wrap";
    wrap.tabIndex = 0;
    wrap.role = "region";
    wrap.ariaLabel = gettext("Tokens");
    wrap.append(table);
    return wrap;
  }

  #pages(length) {
    if (length <= ROWS) return [];
    const line = document.createElement("div");
    line.className = "pages";
    const words = document.createElement("span");
    words.textContent = phrase("%(from)s to %(to)s of %(all)s messages", {
      from: grouped(this.#from + 1), to: grouped(Math.min(length, this.#from + ROWS)), all: grouped(length),
    });
    const button = (step, text, off) => {
      const made = document.createElement("button");
      made.type = "button";
      made.className = "button button-small";
      made.dataset.rows = step;
      made.textContent = text;
      made.disabled = off;
      return made;
    };
    const both = document.createElement("span");
    both.className = "row";
    both.append(button(-ROWS, gettext("Earlier"), !this.#from), button(ROWS, gettext("Later"), this.#from + ROWS >= length));
    line.append(words, both);
    return [line];
  }
}
