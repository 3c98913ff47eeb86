// The planner's form: sliders and numbers follow each other, and each change prices the plan again.

const form = document.querySelector("[data-planner]");

function bounds(slider) {
  const { low, high, step, scale } = slider.dataset;
  return { low: Number(low), high: Number(high), step: Number(step), log: scale === "log" };
}

function toNumber(slider) {
  const { low, high, step, log } = bounds(slider);
  const share = Number(slider.value) / 1000;
  const value = log ? low * (high / low) ** share : low + (high - low) * share;
  // Larger figures need no last digit; a step of the slider still changes them.
  const unit = log && value >= 256 ? 2 ** (Math.floor(Math.log2(value)) - 7) : step;
  const rounded = Math.round(value / unit) * unit;
  return Math.min(high, Math.max(low, Number(rounded.toFixed(4))));
}

function toShare(slider, value) {
  const { low, high, log } = bounds(slider);
  const inside = Math.min(high, Math.max(low, value));
  const share = log ? Math.log(inside / low) / Math.log(high / low) : (inside - low) / (high - low);
  return Math.round(share * 1000);
}

function follow(slider, number) {
  const value = Number(number.value || number.placeholder);
  if (Number.isFinite(value) && value > 0) slider.value = String(toShare(slider, value));
  slider.setAttribute("aria-valuetext", number.value || number.placeholder);
}

function start() {
  // One request at a time: what changes meanwhile is priced when the answer is there. So a slider that is dragged
  // is answered as fast as the server can, and never by more than one request in flight.
  let busy = false;
  let again = false;
  const price = () => {
    again = busy;
    if (busy) return;
    busy = true;
    form.dispatchEvent(new CustomEvent("plan"));
  };
  form.addEventListener("htmx:afterRequest", () => {
    busy = false;
    if (again) price();
  });
  for (const slider of form.querySelectorAll("[data-slider]")) {
    const number = form.elements.namedItem(slider.dataset.slider);
    follow(slider, number);
    slider.addEventListener("input", () => {
      number.value = String(toNumber(slider));
      slider.setAttribute("aria-valuetext", number.value);
    });
    number.addEventListener("input", () => follow(slider, number));
  }
  form.addEventListener("input", price);
  form.addEventListener("change", price);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    price();
  });
  // What was opened stays open when the plan is drawn again.
  const plan = document.getElementById("plan");
  let open = new Set();
  plan.addEventListener("htmx:beforeSwap", () => {
    open = new Set([...plan.querySelectorAll("details[open][data-keep]")].map((item) => item.dataset.keep));
  });
  plan.addEventListener("htmx:afterSwap", () => {
    for (const item of plan.querySelectorAll("details[data-keep]")) item.open = open.has(item.dataset.keep);
  });
}

if (form) start();
