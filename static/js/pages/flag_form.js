// The form of a profile with many fields: find one by typing, show the builder's own, grey what a release lacks, and
// put what the preview found beside the field that it is about. Without this script every field is simply shown.

const NEWEST = [1, 2, 1];

const form = document.querySelector("#content-main form[method=post][novalidate]") ?? document.querySelector("form.warn-unsaved-form");
if (form) start(form);

function start(form) {
  const lines = [...form.querySelectorAll(".field-line")].map((node) => describe(node));
  const sets = [...form.querySelectorAll("fieldset.module")];
  const panel = form.querySelector("[data-field-search]");
  const search = panel?.querySelector("input[type=search]");
  const changed = panel?.querySelector("[data-only-changed]");

  const draw = () => {
    followBuilder(form, sets);
    followRelease(form, lines);
    if (panel) find(panel, search.value, changed.checked, lines, sets);
  };
  form.addEventListener("input", draw);
  form.addEventListener("change", draw);
  search?.addEventListener("keydown", (event) => {
    // Enter goes to the first field that is shown; it never saves the form.
    if (event.key !== "Enter") return;
    event.preventDefault();
    lines.find((line) => line.input && shown(line.node))?.input.focus();
  });
  const preview = form.querySelector(".inf-preview-body");
  const tell = () => {
    sayBeside(preview, lines);
    if (panel) judge(panel.querySelector("[data-verdict]"), preview);
  };
  preview?.addEventListener("htmx:afterSwap", tell);
  if (preview) tell();
  draw();
  openWithErrors(sets);
}

function describe(node) {
  const input = node.querySelector("input:not([type=hidden]), select, textarea");
  const flag = node.querySelector(".inf-flag");
  const label = node.querySelector("label")?.textContent ?? "";
  const text = `${label} ${label.replaceAll("_", " ")} ${flag?.textContent ?? node.textContent}`.toLowerCase();
  const first = input ? valueOf(input) : "";
  return { node, input, flag, text, initial: input?.type === "checkbox" ? "" : flag ? "" : first };
}

function valueOf(input) {
  return input.type === "checkbox" ? (input.checked ? "on" : "") : input.value.trim();
}

function shown(node) {
  return node.getClientRects().length > 0;
}

function followBuilder(form, sets) {
  const builder = form.querySelector("[name=builder]");
  if (!builder) return;
  for (const set of sets) {
    const mine = set.classList.contains(`inf-for-${builder.value}`);
    const some = /\binf-for-/.test(set.className);
    set.classList.toggle("inf-other-builder", some && !mine);
  }
}

function followRelease(form, lines) {
  const typed = form.querySelector("[name=tensorrt_llm]")?.value ?? "";
  const release = numbers(typed) ?? NEWEST;
  for (const line of lines) {
    if (!line.flag) continue;
    const since = numbers(line.flag.dataset.since);
    const until = numbers(line.flag.dataset.until);
    const away = Boolean((since && before(release, since)) || (until && !before(release, until)));
    line.node.classList.toggle("inf-away", away);
    line.flag.querySelector(".inf-flag-away").hidden = !away;
    // A value that was set stays reachable, so that it can be taken out; the preview says why it is refused.
    if (line.input) line.input.disabled = away && !valueOf(line.input);
  }
}

function numbers(text) {
  const found = /^v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?/.exec((text ?? "").trim());
  return found ? [Number(found[1]), Number(found[2]), Number(found[3] ?? 0)] : null;
}

function before(one, other) {
  for (let index = 0; index < 3; index += 1) {
    if (one[index] !== other[index]) return one[index] < other[index];
  }
  return false;
}

function find(panel, typed, onlyChanged, lines, sets) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const narrow = words.length > 0 || onlyChanged;
  let count = 0;
  for (const line of lines) {
    const fits = words.every((word) => line.text.includes(word));
    const differs = !onlyChanged || (line.input && valueOf(line.input) !== line.initial);
    const visible = fits && differs;
    line.node.classList.toggle("inf-not-found", !visible);
    if (visible && !line.node.closest(".inf-other-builder")) count += 1;
  }
  for (const set of sets) {
    const some = set.querySelector(".field-line:not(.inf-not-found)") !== null;
    set.classList.toggle("inf-not-found", !some);
    const details = set.querySelector("details");
    if (!details) continue;
    if (narrow && some && !details.open) {
      details.open = true;
      details.dataset.found = "";
    } else if (!narrow && "found" in details.dataset) {
      details.open = false;
      delete details.dataset.found;
    }
  }
  const status = panel.querySelector("[role=status]");
  status.textContent = narrow ? (count ? `${panel.dataset.some} ${count}` : panel.dataset.none) : "";
}

function sayBeside(preview, lines) {
  const found = new Map();
  for (const item of preview.querySelectorAll("[data-where]")) {
    if (item.dataset.severity === "info") continue;
    const name = item.dataset.where;
    if (!found.has(name)) found.set(name, item);
  }
  for (const line of lines) {
    const item = found.get(line.input?.name ?? "");
    const place = line.node.querySelector(".inf-flag-say") ?? (item ? placeIn(line) : null);
    if (!place) continue;
    const text = item?.querySelector("span:not(.icon)")?.textContent ?? "";
    if (place.textContent !== text) place.textContent = text;
    place.className = item ? `inf-flag-say inf-say-${item.dataset.severity}` : "inf-flag-say";
  }
}

function placeIn(line) {
  const place = document.createElement("span");
  place.setAttribute("role", "status");
  place.className = "inf-flag-say";
  line.input.parentElement.closest(".grow")?.append(place);
  return place;
}

function judge(link, preview) {
  const count = (severity) => preview.querySelectorAll(`.finding-${severity}`).length;
  const errors = count("error");
  const warnings = count("warning");
  const parts = [];
  if (errors) parts.push(`${link.dataset.errors} ${errors}`);
  if (warnings) parts.push(`${link.dataset.warnings} ${warnings}`);
  link.textContent = parts.join(", ") || link.dataset.good;
  link.classList.toggle("inf-say-error", errors > 0);
  link.classList.toggle("inf-say-warning", !errors && warnings > 0);
  link.hidden = preview.querySelector(".inf-part") === null;
}

function openWithErrors(sets) {
  for (const set of sets) {
    if (set.querySelector(".errorlist, .errors")) set.querySelector("details")?.setAttribute("open", "");
  }
}
