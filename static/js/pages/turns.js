// Questions and answers in the document. Text is appended once per frame, so that 200 tokens a second stay smooth.
import { ABSENT, grouped, significant } from "../pieces/format.js";
import { gettext } from "../pieces/words.js";

const NEAR_END = 80;

export class Turns {
  #pending = new Map();
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

  #article(uid) {
    return this.box.querySelector(`[data-turn="${CSS.escape(uid)}"]`);
  }

  #put(article, selector, text) {
    const node = article.querySelector(selector);
    if (node.textContent !== text) node.textContent = text;
  }

  // True for a turn that was not in the page yet. A regenerated answer takes the place of the one it replaces.
  start(turn) {
    if (this.#article(turn.uid)) return false;
    const article = this.template.content.querySelector("article").cloneNode(true);
    article.dataset.turn = turn.uid;
    article.dataset.position = turn.position;
    article.querySelector("[data-question]").textContent = turn.prompt;
    this.empty.hidden = true;
    const old = this.box.querySelector(`[data-position="${turn.position}"]`);
    if (old) old.replaceWith(article);
    else this.box.insertBefore(article, this.empty);
    this.follow = true;
    this.toEnd();
    return !old;
  }

  // A turn that was streaming when the page was drawn: its text is replayed from the beginning.
  again(uid) {
    this.#article(uid).querySelector("[data-answer]").textContent = "";
  }

  first(uid, ttft) {
    const article = this.#article(uid);
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
    for (const [uid, { text, tokens, seconds }] of this.#pending) {
      const article = this.#article(uid);
      if (!article) continue;
      if (text) article.querySelector("[data-answer]").append(text);
      this.#put(article, "[data-tokens]", grouped(tokens));
      if (tokens > 1 && seconds > 0.2) this.#put(article, "[data-rate]", significant((tokens - 1) / seconds));
    }
    this.#pending.clear();
    if (this.follow) this.toEnd();
  }

  finish(turn) {
    this.#flush();
    const article = this.#article(turn.uid);
    if (!article) return;
    const answer = article.querySelector("[data-answer]");
    if (answer.textContent !== turn.answer) answer.textContent = turn.answer;
    else answer.normalize();
    article.dataset.state = turn.state;
    const { ttft_ms: ttft, tokens_per_second: rate, tokens, prompt_tokens: prompt, cached_tokens: cached } = turn.metrics;
    this.#put(article, "[data-ttft]", significant(ttft ?? null));
    this.#put(article, "[data-rate]", significant(rate ?? null));
    this.#put(article, "[data-tokens]", grouped(tokens ?? null));
    const more = [];
    if (prompt !== null && prompt !== undefined) more.push(`${grouped(prompt)} ${gettext("prompt")}`);
    if (cached) more.push(`${grouped(cached)} ${gettext("cached")}`);
    this.#put(article, "[data-prompt-tokens]", more.join(", ") || "");
    this.#state(article, turn);
    if (this.follow) this.toEnd();
  }

  #state(article, turn) {
    const problem = article.querySelector("[data-problem]");
    const words = turn.state === "done" ? "" : [turn.sentence, turn.remedy].filter(Boolean).join(" ");
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

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
  }
}
