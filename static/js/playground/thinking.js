// What a reasoning model thinks before it answers, apart from its answer. The marks are those of
// apps/streaming/domain/thinking.py; a test compares the two.
export const MARKS = [
  ["<think>", "</think>"],
  ["<thinking>", "</thinking>"],
  ["<seed:think>", "</seed:think>"],
  ["[THINK]", "[/THINK]"],
  ["<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"],
];

// { thought: text or null, answer: text, open: still thinking }. A mark that has only begun is not shown yet.
export function split(text, ended = false) {
  const begin = text.trimStart();
  for (const [opening, closing] of MARKS) {
    if (begin.startsWith(opening)) {
      const inside = begin.slice(opening.length);
      const at = inside.indexOf(closing);
      if (at >= 0) return { thought: inside.slice(0, at).trim(), answer: inside.slice(at + closing.length).trimStart(), open: false };
      return { thought: ended ? inside.trim() : withoutBegun(inside, closing).trimStart(), answer: "", open: !ended };
    }
  }
  if (!ended && begin && begin.length < 40 && MARKS.some(([opening]) => opening.startsWith(begin))) {
    return { thought: null, answer: "", open: false };
  }
  // Templates of some models open the thought in the prompt; then only its end is in the answer, on a line of its own.
  for (const [opening, closing] of MARKS) {
    const at = text.indexOf(closing);
    if (at < 0 || (at > 0 && text[at - 1] !== "\n")) continue;
    const thought = text.slice(0, at);
    if (!thought.includes(opening)) {
      return { thought: thought.trim(), answer: text.slice(at + closing.length).trimStart(), open: false };
    }
  }
  return { thought: null, answer: text, open: false };
}

function withoutBegun(text, mark) {
  for (let size = Math.min(mark.length - 1, text.length); size > 0; size -= 1) {
    if (text.endsWith(mark.slice(0, size))) return text.slice(0, -size);
  }
  return text;
}
