// Requests come and go without a row that changes: look again while the page is seen.
import { lookEverywhere } from "../pieces/live.js";

const POLL_MS = 2000;

setInterval(() => { if (!document.hidden) lookEverywhere(); }, POLL_MS);
