import { LiveChart } from "../pieces/charts.js";

for (const card of document.querySelectorAll("[data-chart]")) new LiveChart(card);
