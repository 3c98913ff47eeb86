// Live regions. A socket only tells the browser to look: a region with data-live="topic ..." is fetched again from the
// page that drew it (or from data-live-url) and morphed in place, so the server stays the only one that draws rows.
import { live } from "../realtime/socket.js";
import { CLOSE } from "../realtime/schema.js";
import { morph } from "./morph.js";
import { gettext } from "./words.js";

// Between two looks at one address: a pause at least, and more where the server takes longer to answer.
const PAUSE_MS = 400;
const PAUSE_FACTOR = 8;
const POLL_MS = 15000;
const BANNER_AFTER_MS = 3000;
const sources = new Map();

class Source {
  #timer = 0;
  #busy = false;
  #again = false;
  #last = 0;
  #took = 0;

  constructor(url) {
    this.url = url;
  }

  // Looks at once, or as soon as the pause since the last look is over; one look at a time.
  look() {
    if (this.#busy) {
      this.#again = true;
      return;
    }
    if (this.#timer) return;
    const wait = Math.max(0, this.#last + Math.max(PAUSE_MS, PAUSE_FACTOR * this.#took) - Date.now());
    this.#timer = setTimeout(() => this.#fetch(), wait);
  }

  async #fetch() {
    this.#timer = 0;
    if (document.hidden) {
      this.#again = true;
      return;
    }
    this.#busy = true;
    this.#again = false;
    const begun = Date.now();
    try {
      const answer = await fetch(this.url, { headers: { "X-Part": "main" } });
      if (answer.redirected && new URL(answer.url).pathname.startsWith("/sign-in")) location.reload();
      else if (answer.ok) this.#draw(await answer.text());
    } catch {
      // The banner tells that the server is away; the next change or poll looks again.
    }
    this.#last = Date.now();
    this.#took = this.#last - begun;
    this.#busy = false;
    if (this.#again) this.look();
  }

  woken() {
    if (this.#again) this.look();
  }

  #draw(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const region of document.querySelectorAll("[data-live]")) {
      if (urlOf(region) !== this.url) continue;
      const wanted = fresh.getElementById(region.id);
      if (wanted) morph(region, wanted);
    }
    document.dispatchEvent(new CustomEvent("live:drawn", { detail: { url: this.url } }));
  }
}

function urlOf(region) {
  return region.dataset.liveUrl || `${location.pathname}${location.search}`;
}

function source(url) {
  if (!sources.has(url)) sources.set(url, new Source(url));
  return sources.get(url);
}

function follow() {
  const wanted = new Map();
  for (const region of document.querySelectorAll("[data-live]")) {
    for (const topic of region.dataset.live.split(" ")) {
      if (!wanted.has(topic)) wanted.set(topic, new Set());
      wanted.get(topic).add(urlOf(region));
    }
  }
  for (const [topic, urls] of wanted) {
    live.subscribe(topic, { data: () => { for (const url of urls) source(url).look(); } });
  }
}

export function lookEverywhere() {
  for (const region of document.querySelectorAll("[data-live]")) source(urlOf(region)).look();
}

// The banner. A short absence (a page that loads, a server that restarts) is not worth a word.
const banner = document.querySelector("[data-live-banner]");
const given = banner?.querySelector("[data-live-reason]").textContent ?? "";
let bannerTimer = 0;
let poll = 0;

function reasonOf(state) {
  if (state.name === "outdated") return gettext("This page comes from an older version: reload it.");
  if (state.code === CLOSE.signedOut) return gettext("You are signed out: reload the page to sign in.");
  if (state.code === CLOSE.notAllowed) return gettext("Your role does not include them.");
  if (state.code === CLOSE.tryLater) return gettext("Redis does not answer, so changes do not reach this page.");
  return gettext("The connection to the server is lost; it is tried again.");
}

function show(reason) {
  banner.querySelector("[data-live-reason]").textContent = reason;
  banner.hidden = false;
  poll ||= setInterval(lookEverywhere, POLL_MS);
}

function hide() {
  clearTimeout(bannerTimer);
  bannerTimer = 0;
  clearInterval(poll);
  poll = 0;
  banner.hidden = true;
}

if (banner && document.querySelector("[data-live], [data-live-samples], [data-live-log]")) {
  if (given) poll = setInterval(lookEverywhere, POLL_MS);
  live.onState((state) => {
    if (state.name === "open") hide();
    else if (state.name === "outdated" || state.name === "refused") show(reasonOf(state));
    else if (state.name === "waiting" && !bannerTimer && banner.hidden) {
      bannerTimer = setTimeout(() => show(reasonOf(live.state.code ? live.state : state)), BANNER_AFTER_MS);
    }
  });
  follow();
  // What no topic tells (temperatures, power) is looked at again every so many seconds.
  for (const region of document.querySelectorAll("[data-live-every]")) {
    setInterval(() => { if (!document.hidden) source(urlOf(region)).look(); }, 1000 * Number(region.dataset.liveEvery));
  }
}

// An action answered with HX-Trigger: refresh.
document.body.addEventListener("refresh", lookEverywhere);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) for (const each of sources.values()) each.woken();
});
