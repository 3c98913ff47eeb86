// Charts of one node or GPU. No live topic carries each device's samples: the page asks for what is new.
import { ChartPage, startBar } from "../charts/page.js";

const EVERY_MS = 2000;
const spec = JSON.parse(document.getElementById("charts-page").textContent);
const page = new ChartPage(spec);
const bar = document.querySelector("[data-charts-bar]");
if (bar) startBar(bar, page);

let newest = spec.frame.live_from - 0.001;
let asking = false;

async function more() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    const answer = await fetch(`${spec.data_url}?since=${newest}`);
    if (!answer.ok || answer.redirected) return;
    const { samples } = await answer.json();
    if (!samples.length) return;
    newest = samples[samples.length - 1].at;
    page.add(samples);
  } catch {
    // The banner tells that the server is away; the next look asks for all that was missed.
  } finally {
    asking = false;
  }
}

if (!spec.fixed) {
  setInterval(more, EVERY_MS);
  more();
}
