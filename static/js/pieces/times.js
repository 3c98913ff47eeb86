// Keeps relative times and running durations fresh; exact times stay in the title, in the person's own zone.
import { duration, relative } from "./format.js";

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function tick() {
  if (document.hidden) return;
  const now = Date.now();
  for (const node of document.querySelectorAll("time[data-when]")) {
    const moment = new Date(node.dateTime);
    write(node, relative(moment, now));
    if (!node.dataset.exact) {
      node.title = moment.toLocaleString();
      node.dataset.exact = "1";
    }
  }
  for (const node of document.querySelectorAll("[data-running-since]")) {
    write(node, duration((now - Date.parse(node.dataset.runningSince)) / 1000));
  }
}

setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
