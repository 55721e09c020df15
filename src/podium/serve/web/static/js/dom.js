// Elements without markup: nothing here, or in any page, turns a string into HTML.

export function h(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const el = document.createElement(name || "div");
  if (classes.length) el.className = classes.join(" ");
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked") el[key] = value;
    else if (key === "class") el.className += ` ${value}`;
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

export function svg(tag, props = {}, ...children) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) el.setAttribute(key, value);
  el.append(...children);
  return el;
}

export const place = (el, style) => (Object.assign(el.style, style), el);

export function dollars(value) {
  if (value === null || value === undefined) return "price unknown";
  if (value === 0) return "$0";
  if (value < 0.01) return `$${value.toPrecision(2)}`;
  return `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

export const seconds = (s) =>
  s < 0.01 ? "0 s" : s < 10 ? `${s.toFixed(s < 1 ? 2 : 1)} s` : s < 100 ? `${s.toFixed(0)} s` : `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;

export const count = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : n >= 1e4 ? `${(n / 1e3).toFixed(0)} k` : n.toLocaleString("en"));

export const percent = (x, digits = 0) => `${(100 * x).toFixed(digits)} %`;

export const when = (at) => new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

export function ago(at) {
  const s = Date.now() / 1000 - at;
  for (const [size, unit] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) {
    if (s >= size) return new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(-Math.floor(s / size), unit);
  }
  return "just now";
}

/** Terminal codes and marks that turn text around say nothing here; what is left is plain text. */
export const plain = (text) =>
  text.replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g, "").replace(/[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]/g, "");

const hues = new Map();

/** One colour for each worker, in this order; whoever is met later has the next one. */
export function freshHues(names) {
  hues.clear();
  names.forEach(hueNumber);
}

export function hueNumber(name) {
  if (!hues.has(name)) hues.set(name, hues.size % 12);
  return hues.get(name);
}

export const hue = (name) => `hue${hueNumber(name)}`;

export const worker = (name) => h("span.name", {}, h("span.dot", { class: hue(name), "aria-hidden": "true" }), name);

export function say(text) {
  document.getElementById("said").textContent = text;
}

export function problem(error) {
  return h("p.problem", { role: "alert" }, error.message ?? String(error));
}

export function debounce(call, ms) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), ms);
  };
}
