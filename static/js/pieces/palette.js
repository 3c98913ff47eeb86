// Ctrl-K: go to anything, run an action. The server answers what this person may see and do.
import { gettext } from "./words.js";
import { confirm } from "./confirm.js";
import { toast } from "./toast.js";

const dialog = document.getElementById("palette");
const input = dialog?.querySelector("input");
const list = dialog?.querySelector("[role=listbox]");
const WAIT_MS = 120;
let items = [];
let chosen = 0;
let timer = 0;
let asked = 0;

function draw() {
  list.replaceChildren();
  if (!items.length) {
    const none = document.createElement("p");
    none.className = "palette-none";
    none.textContent = gettext("Nothing is called that.");
    list.append(none);
  }
  items.forEach((item, index) => {
    const row = document.createElement("div");
    row.className = "palette-item";
    row.id = `palette-${index}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(index === chosen));
    row.dataset.index = index;
    row.innerHTML = '<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path/></svg><span class="ellipsis"></span><span class="palette-hint"></span>';
    row.querySelector("path").setAttribute("d", item.icon);
    row.children[1].textContent = item.title;
    row.children[2].textContent = item.hint;
    list.append(row);
  });
  input.setAttribute("aria-activedescendant", items.length ? `palette-${chosen}` : "");
}

function choose(index) {
  if (!items.length) return;
  list.children[chosen]?.setAttribute("aria-selected", "false");
  chosen = (index + items.length) % items.length;
  list.children[chosen].setAttribute("aria-selected", "true");
  list.children[chosen].scrollIntoView({ block: "nearest" });
  input.setAttribute("aria-activedescendant", `palette-${chosen}`);
}

async function ask() {
  const mine = ++asked;
  const url = `${document.body.dataset.paletteUrl}?q=${encodeURIComponent(input.value)}`;
  try {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const found = await answer.json();
    if (mine !== asked) return;
    items = found.items;
    chosen = 0;
    draw();
  } catch {
    dialog.close();
    toast("bad", gettext("The server did not answer."), gettext("Look whether it runs, then try again."));
  }
}

async function run(item) {
  dialog.close();
  if (item.method !== "post") {
    location.assign(item.url);
    return;
  }
  if (item.confirm && !(await confirm(item.confirm))) return;
  const form = document.createElement("form");
  form.method = "post";
  form.action = item.url;
  const token = document.createElement("input");
  token.type = "hidden";
  token.name = "csrfmiddlewaretoken";
  token.value = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
  form.append(token);
  document.body.append(form);
  form.submit();
}

function open() {
  if (document.querySelector("dialog[open]")) return;
  input.value = "";
  dialog.showModal();
  ask();
}

if (dialog) {
  document.querySelector("[data-palette-open]").addEventListener("click", open);
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey) {
      event.preventDefault();
      open();
    }
  });
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT_MS);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter" && items.length) {
      event.preventDefault();
      run(items[chosen]);
    }
  });
  list.addEventListener("pointermove", (event) => {
    const row = event.target.closest("[data-index]");
    if (row && Number(row.dataset.index) !== chosen) choose(Number(row.dataset.index));
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("[data-index]");
    if (row) run(items[Number(row.dataset.index)]);
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}
