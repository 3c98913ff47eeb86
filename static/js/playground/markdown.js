// Markdown of a growing text as DOM nodes. No HTML is ever parsed: marked's lexer makes tokens, each known kind of
// token makes one kind of element, and all else, HTML included, is shown as the text that it is.
//
//   const view = new Markdown(element);
//   view.append(text);      // as often as text comes
//   view.draw();            // once a frame: only the block that is still open is made again
//
// A block is closed once another one follows it behind a blank line; its nodes are never touched again.
import { Lexer } from "../../vendor/marked.esm.js";
import { gettext } from "../pieces/words.js";

const OPTIONS = { gfm: true, breaks: true };
const SAFE_LINK = /^(https?:|mailto:)/i;
const ENTITY = /&(#\d{1,7}|#x[\da-f]{1,6}|[a-z][a-z\d]{1,31});/gi;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^\n`]*)\n/;
// The inline grammar is quadratic on some inputs; a paragraph beyond this is shown as it came.
const MOST_INLINE = 100_000;
// Of the time since the last drawing, so much may go into the next: long open blocks are drawn less often.
const SHARE = 4;

export class Markdown {
  #root;
  #tail = "";
  #open = [];
  #list = null;
  #fence = null;
  #drawnAt = 0;
  #cost = 0;
  #changed = false;

  constructor(root) {
    this.#root = root;
    root.replaceChildren();
  }

  append(text) {
    if (!text) return;
    this.#tail += text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    this.#changed = true;
  }

  // Whether all text is drawn; false where the open block is so long that this frame was left out.
  draw({ now = performance.now(), whole = false } = {}) {
    if (!this.#changed && !(whole && this.#fence)) return true;
    if (!whole && now - this.#drawnAt < this.#cost * SHARE) return false;
    this.#changed = false;
    if (whole) this.#fence = null;
    if (!this.#growFence()) this.#lex();
    this.#drawnAt = performance.now();
    this.#cost = this.#drawnAt - now;
    return true;
  }

  // A code block that grows gets its new text and nothing else.
  #growFence() {
    if (!this.#fence) return false;
    const { start, mark, code } = this.#fence;
    const body = this.#tail.slice(start);
    const last = body.slice(code.data.length ? body.lastIndexOf("\n", code.data.length - 1) + 1 : 0);
    if (last.split("\n").some((line) => line.trim().startsWith(mark))) {
      this.#fence = null;
      return false;
    }
    // A last line of nothing but fence letters may become its end.
    const shown = body.replace(/\n?[ ]{0,3}[`~]*$/, "").replace(/\n$/, "");
    if (shown.length > code.data.length) code.appendData(shown.slice(code.data.length));
    return true;
  }

  #lex() {
    const tokens = new Lexer(OPTIONS).lex(this.#tail);
    const closed = closedTokens(tokens);
    this.#clear();
    for (const token of tokens.slice(0, closed)) {
      this.#root.append(...this.#blocks(token).filter((node) => !node.parentNode));
      if (token.type !== "space") this.#list = null;
    }
    this.#tail = this.#tail.slice(lengthOf(tokens.slice(0, closed)));
    const rest = tokens.slice(closed);
    if (rest[0]?.type === "list" && rest.length <= 2) this.#closeItems(rest[0]);
    for (const token of rest) {
      const made = this.#blocks(token);
      this.#root.append(...made.filter((node) => !node.parentNode));
      this.#open.push(...made);
    }
    this.#watchFence(rest);
  }

  #clear() {
    for (const node of this.#open) node.remove();
    this.#open = [];
  }

  #watchFence(rest) {
    const token = rest.length === 1 ? rest[0] : null;
    const head = token?.type === "code" ? FENCE.exec(this.#tail) : null;
    const code = head && this.#open[0]?.querySelector("code");
    if (!code) return;
    if (!code.firstChild) code.appendChild(document.createTextNode(""));
    this.#fence = { start: head[0].length, mark: head[1], code: code.firstChild };
  }

  // All but the newest two items of a list that grows are closed, too: a list can be the whole answer.
  #closeItems(token) {
    if (this.#list && this.#list.ordered !== token.ordered) this.#list = null;
    const done = token.items.slice(0, -2);
    if (!done.length && !this.#list) return;
    if (!this.#list) {
      this.#list = { ordered: token.ordered, node: listElement(token) };
      this.#root.append(this.#list.node);
    }
    this.#list.node.append(...done.map((item) => listItem(item)));
    this.#tail = this.#tail.slice(lengthOf(done));
    token.items.splice(0, done.length);
  }

  #blocks(token) {
    if (token.type === "list" && this.#list && this.#list.ordered === token.ordered) {
      const items = token.items.map((item) => listItem(item));
      this.#list.node.append(...items);
      return items;
    }
    return blocks([token]);
  }
}

// How many tokens at the beginning are closed: those before the last blank line that something follows.
function closedTokens(tokens) {
  for (let at = tokens.length - 2; at > 0; at -= 1) {
    if (tokens[at].type === "space" && tokens[at + 1].type !== "space") return at + 1;
  }
  return 0;
}

function lengthOf(tokens) {
  return tokens.reduce((sum, token) => sum + token.raw.length, 0);
}

// ---------------------------------------------------------------- tokens to nodes

export function element(name, className = "", ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

function blocks(tokens) {
  return tokens.flatMap((token) => {
    const make = BLOCKS[token.type];
    return make ? make(token) : token.tokens ? [element("p", "", ...inline(token.tokens))] : asText(token);
  });
}

const BLOCKS = {
  space: () => [],
  def: () => [],
  hr: () => [element("hr")],
  // An answer's headings lie below those of the page.
  heading: (token) => [element(`h${Math.min(6, token.depth + 2)}`, "", ...inline(token.tokens))],
  paragraph: (token) => [element("p", "", ...paragraph(token))],
  text: (token) => [element("p", "", ...(token.tokens ? inline(token.tokens) : [decoded(token.text)]))],
  blockquote: (token) => [element("blockquote", "", ...blocks(token.tokens))],
  list: (token) => [listElement(token, token.items.map((item) => listItem(item)))],
  code: (token) => [codeBlock(token)],
  table: (token) => [table(token)],
  html: (token) => asText(token),
};

function paragraph(token) {
  return token.raw.length > MOST_INLINE ? [token.raw] : inline(token.tokens);
}

function asText(token) {
  const text = token.raw.replace(/\n+$/, "");
  return text ? [element("p", "as-text", text)] : [];
}

function listElement(token, items = []) {
  const node = element(token.ordered ? "ol" : "ul", "", ...items);
  if (token.ordered && token.start !== 1 && token.start !== "") node.start = token.start;
  return node;
}

function listItem(item) {
  const node = element("li");
  for (const token of item.tokens) {
    if (token.type === "text" && token.tokens) node.append(...inline(token.tokens));
    else if (token.type === "checkbox") node.append(checkbox(token));
    else node.append(...blocks([token]));
  }
  return node;
}

function checkbox(token) {
  return `${token.checked ? "\u2611" : "\u2610"} `;
}

function codeBlock(token) {
  const code = element("code", "", token.text);
  const head = element("div", "code-head", element("span", "faint", (token.lang ?? "").split(/\s/)[0]));
  const button = element("button", "button button-quiet button-small", gettext("Copy"));
  button.type = "button";
  button.dataset.copyCode = "";
  head.append(button);
  const pre = element("pre", "", code);
  // It scrolls sideways by itself, so it must be reachable by keyboard.
  pre.tabIndex = 0;
  return element("div", "code-block", head, pre);
}

function table(token) {
  const cell = (name) => (one, column) => {
    const node = element(name, "", ...inline(one.tokens));
    const align = token.align[column];
    if (align === "right" || align === "center") node.className = `to-${align}`;
    return node;
  };
  const head = element("thead", "", element("tr", "", ...token.header.map(cell("th"))));
  const body = element("tbody", "", ...token.rows.map((row) => element("tr", "", ...row.map(cell("td")))));
  const wrap = element("div", "table-wrap", element("table", "table", head, body));
  wrap.tabIndex = 0;
  return wrap;
}

const INLINE = {
  strong: (token) => element("strong", "", ...inline(token.tokens)),
  em: (token) => element("em", "", ...inline(token.tokens)),
  del: (token) => element("del", "", ...inline(token.tokens)),
  codespan: (token) => element("code", "", token.text),
  br: () => element("br"),
  link: (token) => link(token, inline(token.tokens)),
  // Nothing is loaded from elsewhere because an answer names it.
  image: (token) => link(token, [decoded(token.text || token.href)]),
  escape: (token) => token.text,
  checkbox: (token) => checkbox(token),
  text: (token) => (token.tokens ? element("span", "", ...inline(token.tokens)) : decoded(token.text)),
};

function inline(tokens = []) {
  return tokens.map((token) => (INLINE[token.type] ? INLINE[token.type](token) : token.raw));
}

function link(token, children) {
  const href = decoded(token.href).trim();
  if (!SAFE_LINK.test(href)) return token.raw;
  const node = element("a", "", ...children);
  node.href = href;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
  if (token.title) node.title = decoded(token.title);
  return node;
}

const entities = new Map();

// Markdown's entities as the characters that they stand for; the parser's document runs and loads nothing.
function decoded(text) {
  if (!text.includes("&")) return text;
  return text.replace(ENTITY, (entity) => {
    if (!entities.has(entity)) {
      entities.set(entity, new DOMParser().parseFromString(entity, "text/html").documentElement.textContent);
    }
    return entities.get(entity);
  });
}
