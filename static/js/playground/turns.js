// Questions and answers of the branch that is shown. Text is drawn once a frame, so that 200 tokens a second stay smooth.
import { ABSENT, grouped, significant } from "../pieces/format.js";
import { gettext, phrase } from "../pieces/words.js";
import { Answer } from "./answer.js";

const NEAR_END = 80;

export class Turns {
  #pending = new Map();
  #answers = new Map();
  #frame = 0;

  constructor(box, template) {
    this.box = box;
    this.template = template;
    this.empty = box.querySelector("[data-turns-empty]");
    this.follow = true;
    box.addEventListener("scroll", () => {
      this.follow = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
    }, { passive: true });
  }

  article(uid) {
    return this.box.querySelector(`[data-turn="${CSS.escape(uid)}"]`);
  }

  text(uid) {
    return this.#answers.get(uid)?.text ?? "";
  }

  // The turn that the next question follows; empty where none is shown.
  get last() {
    const articles = this.box.querySelectorAll("[data-turn]");
    return articles.length ? articles[articles.length - 1].dataset.turn : "";
  }

  #put(article, selector, text) {
    const node = article.querySelector(selector);
    if (node.textContent !== text) node.textContent = text;
  }

  #told(name, detail) {
    document.dispatchEvent(new CustomEvent(name, { detail }));
  }

  // What the server drew becomes what is written on.
  adopt(turns) {
    for (const turn of turns) {
      const article = this.article(turn.uid);
      const answer = new Answer(article.querySelector("[data-answer]"));
      this.#answers.set(turn.uid, answer);
      this.#branches(article, turn);
      // The text of an answer that still streams is replayed from the beginning.
      if (turn.state !== "streaming") answer.end(turn.answer);
      this.#told("turn:shown", { turn, article });
    }
  }

  #draw(turn) {
    const article = this.template.content.querySelector("article").cloneNode(true);
    article.dataset.turn = turn.uid;
    article.dataset.position = turn.position;
    article.dataset.state = turn.state;
    article.querySelector("[data-question]").textContent = turn.prompt;
    this.#answers.set(turn.uid, new Answer(article.querySelector("[data-answer]")));
    this.#branches(article, turn);
    this.empty.hidden = true;
    this.box.insertBefore(article, this.empty);
    if (turn.state !== "streaming") this.#end(article, turn);
    this.#told("turn:shown", { turn, article });
    return article;
  }

  #branches(article, turn) {
    const box = article.querySelector("[data-branches]");
    const at = turn.siblings.indexOf(turn.uid);
    box.hidden = turn.siblings.length < 2;
    box.dataset.before = turn.siblings[at - 1] ?? "";
    box.dataset.next = turn.siblings[at + 1] ?? "";
    this.#put(box, "[data-branch-at]", phrase("%(n)s of %(all)s", { n: at + 1, all: turn.siblings.length }));
    box.querySelector('[data-branch="-1"]').disabled = !box.dataset.before;
    box.querySelector('[data-branch="1"]').disabled = !box.dataset.next;
  }

  #cut(article) {
    for (let next = article; next?.matches("[data-turn]");) {
      const after = next.nextElementSibling;
      this.#answers.delete(next.dataset.turn);
      this.#pending.delete(next.dataset.turn);
      next.remove();
      next = after;
    }
  }

  // Whether the turn follows what is shown; all that stood behind its parent belongs to other branches.
  start(turn) {
    if (this.article(turn.uid)) return true;
    const parent = turn.parent ? this.article(turn.parent) : null;
    if (turn.parent && !parent) return false;
    this.#cut(parent ? parent.nextElementSibling : this.box.querySelector("[data-turn]"));
    this.#draw(turn);
    this.follow = true;
    this.toEnd();
    return true;
  }

  // Another branch.
  show(turns) {
    const kept = turns.findIndex((turn) => !this.article(turn.uid));
    const from = kept < 0 ? turns.length : kept;
    const last = from ? this.article(turns[from - 1].uid) : null;
    const top = this.box.scrollTop;
    this.#cut(last ? last.nextElementSibling : this.box.querySelector("[data-turn]"));
    for (const turn of turns.slice(0, from)) this.#branches(this.article(turn.uid), turn);
    for (const turn of turns.slice(from)) this.#draw(turn);
    this.empty.hidden = turns.length > 0;
    this.box.scrollTop = top;
  }

  first(uid, ttft) {
    const article = this.article(uid);
    if (article) this.#put(article, "[data-ttft]", significant(ttft));
  }

  add(uid, text, tokens, seconds) {
    const waiting = this.#pending.get(uid) ?? { text: "", tokens: 0, seconds: 0 };
    waiting.text += text;
    waiting.tokens = tokens;
    waiting.seconds = seconds;
    this.#pending.set(uid, waiting);
    this.#frame ||= requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    for (const [uid, waiting] of this.#pending) {
      const article = this.article(uid);
      const answer = this.#answers.get(uid);
      if (!article || !answer) {
        this.#pending.delete(uid);
        continue;
      }
      const { tokens, seconds } = waiting;
      answer.append(waiting.text);
      waiting.text = "";
      if (answer.draw()) this.#pending.delete(uid);
      if (tokens) this.#put(article, "[data-tokens]", grouped(tokens));
      if (tokens > 1 && seconds > 0.2) this.#put(article, "[data-rate]", significant((tokens - 1) / seconds));
    }
    if (this.#pending.size) this.#frame = requestAnimationFrame(() => this.#flush());
    if (this.follow) this.toEnd();
  }

  finish(turn) {
    this.#flush();
    this.#pending.delete(turn.uid);
    const article = this.article(turn.uid);
    if (!article) return;
    this.#end(article, turn);
    if (this.follow) this.toEnd();
  }

  #end(article, turn) {
    this.#answers.get(turn.uid).end(turn.answer);
    article.dataset.state = turn.state;
    const { ttft_ms: ttft, tokens_per_second: rate, tokens, prompt_tokens: prompt, cached_tokens: cached } = turn.metrics;
    this.#put(article, "[data-ttft]", significant(ttft ?? null));
    this.#put(article, "[data-rate]", significant(rate ?? null));
    this.#put(article, "[data-tokens]", grouped(tokens ?? null));
    const more = [];
    if (prompt !== null && prompt !== undefined) more.push(`${grouped(prompt)} ${gettext("prompt")}`);
    if (cached) more.push(`${grouped(cached)} ${gettext("cached")}`);
    this.#put(article, "[data-prompt-tokens]", more.join(", "));
    this.#state(article, turn);
  }

  #state(article, turn) {
    const problem = article.querySelector("[data-problem]");
    // An answer that was cut at its maximum is done and has something to say all the same.
    const words = [turn.sentence, turn.remedy].filter(Boolean).join(" ");
    problem.textContent = words || ABSENT;
    problem.hidden = !words;
    const chip = article.querySelector("[data-strip-state]");
    chip.replaceChildren();
    if (turn.state === "done") return;
    const word = document.createElement("span");
    word.className = `chip chip-${turn.tone}`;
    const shape = document.getElementById("shapes").content.querySelector(`[data-tone="${CSS.escape(turn.tone)}"] svg`);
    word.append(shape.cloneNode(true), gettext(turn.state));
    chip.append(word);
  }

  asText(uid, plain) {
    this.#answers.get(uid)?.asText(plain);
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
  }
}
