import { ChartPage, startBar } from "../charts/page.js";

const page = new ChartPage(JSON.parse(document.getElementById("charts-page").textContent));
const bar = document.querySelector("[data-charts-bar]");
if (bar) startBar(bar, page);
