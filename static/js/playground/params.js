// The drawer of sampling parameters as the values that a question is sent with.
export function readParams(root) {
  const found = {};
  for (const input of root.querySelectorAll("[data-param]")) {
    if (input.value.trim() !== "") found[input.dataset.param] = Number(input.value);
  }
  for (const choice of root.querySelectorAll("[data-param-choice]")) {
    if (choice.value) found[choice.dataset.paramChoice] = choice.value;
  }
  for (const area of root.querySelectorAll("[data-param-words]")) {
    const words = area.value.split("\n").filter((word) => word !== "");
    if (words.length) found[area.dataset.paramWords] = words;
  }
  return found;
}

// The field of a parameter that was refused, or null.
export function fieldOf(root, name) {
  const safe = CSS.escape(name.split(".")[0]);
  return root.querySelector(`[data-param="${safe}"], [data-param-words="${safe}"], [data-param-choice="${safe}"]`);
}
