// What is written of one token.
import { ABSENT, significant } from "../pieces/format.js";
import { gettext, phrase } from "../pieces/words.js";

export function sentence(fact) {
  const parts = [phrase("no. %(n)s", { n: fact.number })];
  if (fact.first) parts.push(phrase("first after %(ms)s ms", { ms: significant(fact.at) }));
  else parts.push(phrase("+%(gap)s ms, at %(ms)s ms", { gap: significant(fact.gap), ms: significant(fact.at) }));
  if (fact.stall) parts.push(gettext("stall"));
  const [chance] = fact.chances;
  if (chance) parts.push(phrase("log-probability %(value)s (%(share)s%)", { value: logprob(chance.logprob), share: percent(chance.logprob) }));
  return parts.join(" · ");
}

export function alternatives(fact) {
  const [chance] = fact.chances;
  if (!chance?.top.length) return "";
  return chance.top.map(([token, value]) => `“${visible(token)}” ${percent(value)}%`).join(", ");
}

export function visible(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

function logprob(value) {
  return value === null ? ABSENT : value.toFixed(3);
}

function percent(value) {
  return value === null ? "0" : significant(Math.exp(value) * 100);
}
