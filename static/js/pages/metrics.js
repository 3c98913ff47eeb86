import "./charts.js";
import { lookEverywhere } from "../pieces/live.js";

// Lines of rows are drawn on the server, out of roll-ups: nothing tells that they have grown but time.
const EVERY_MS = 10000;
setInterval(() => { if (!document.hidden) lookEverywhere(); }, EVERY_MS);
