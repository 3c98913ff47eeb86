// Figures and times as apps/dashboard/formats.py writes them.
import { gettext, phrase } from "./words.js";

const THIN = "\u202f";
export const ABSENT = "–";

export function grouped(value, digits = 0) {
  if (value === null || value === undefined) return ABSENT;
  const [whole, part] = Math.abs(value).toFixed(digits).split(".");
  const thousands = whole.replace(/\B(?=(\d{3})+$)/g, THIN);
  return `${value < 0 ? "-" : ""}${thousands}${part ? `.${part}` : ""}`;
}

export function significant(value) {
  if (value === null || value === undefined) return ABSENT;
  const size = Math.abs(value);
  const text = grouped(value, size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function change(share) {
  if (share === null || Math.abs(share) < 0.005) return "";
  return `${share > 0 ? "+" : "\u2212"}${grouped(Math.min(Math.abs(share), 9.99) * 100)}${THIN}%`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return ABSENT;
  if (seconds < 10) return `${Math.max(seconds, 0).toFixed(1)}${THIN}s`;
  const whole = Math.round(seconds);
  const two = (n) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}${THIN}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}${THIN}min ${two(whole % 60)}${THIN}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}${THIN}h ${two(Math.floor((whole % 3600) / 60))}${THIN}min`;
  return `${Math.floor(whole / 86400)}${THIN}d ${Math.floor((whole % 86400) / 3600)}${THIN}h`;
}

export function relative(moment, now = Date.now()) {
  const seconds = (now - moment.getTime()) / 1000;
  const size = Math.abs(seconds);
  if (size < 5) return gettext("now");
  let amount;
  if (size < 60) amount = `${Math.floor(size)}${THIN}s`;
  else if (size < 3600) amount = `${Math.floor(size / 60)}${THIN}min`;
  else if (size < 86400) amount = `${Math.floor(size / 3600)}${THIN}h`;
  else if (size < 30 * 86400) {
    const days = Math.floor(size / 86400);
    amount = days === 1 ? gettext("1 day") : phrase("%(n)s days", { n: days });
  } else return moment.toISOString().slice(0, 10);
  return seconds < 0 ? phrase("in %(amount)s", { amount }) : phrase("%(amount)s ago", { amount });
}

export function clock(seconds) {
  const moment = new Date(seconds * 1000);
  return [moment.getHours(), moment.getMinutes(), moment.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}
