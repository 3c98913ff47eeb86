import { Sparks } from "../pieces/sparks.js";

new Sparks(JSON.parse(document.getElementById("sparks").textContent));
