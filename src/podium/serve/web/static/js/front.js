// Accuracy against cost, with intervals; the line joins those that nobody undercuts without losing accuracy.
import { dollars, percent, svg } from "./dom.js";

const [W, H, L, B, T] = [460, 290, 46, 34, 14];
const CHEAP = 1e-7;

/** `open` gives the address that a point leads to. */
export function front(figures, best, open) {
  const points = Object.entries(figures).filter(([, f]) => f.n).map(([name, f]) => ({ name, ...f, usd: Math.max(f.usd_per_question, CHEAP) }));
  const { x, y, axes } = scales(points);
  const named = roomy(points, x, y);
  const line = points.filter((p) => best.includes(p.name)).sort((a, b) => a.usd - b.usd).map((p) => `${x(p)},${y(p.accuracy)}`).join(" ");
  const marks = points.map((p, i) => {
    const said = `${p.name}: ${percent(p.accuracy, 1)} for ${dollars(p.usd_per_question)} a question`;
    const right = x(p) > W * 0.66;
    return svg("a", { href: open(p.name), class: `point hue${i % 8}`, "aria-label": said },
      svg("line", { x1: x(p), x2: x(p), y1: y(p.low), y2: y(p.high), class: "whisker" }),
      svg("circle", { cx: x(p), cy: y(p.accuracy), r: 11, class: "reach" }),
      svg("circle", { cx: x(p), cy: y(p.accuracy), r: 6, class: "mark" }, text("title", said)),
      named.includes(p) ? label(x(p) + (right ? -9 : 9), y(p.accuracy) + 4, short(p.name), right ? "end" : "start") : "");
  });
  return svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "scatter", role: "group", "aria-label": "Accuracy against dollars per question, with intervals and the Pareto front" }, ...axes, svg("polyline", { points: line, class: "front" }), ...marks);
}

function scales(points) {
  const logs = points.map((p) => Math.log10(p.usd));
  const [x0, x1] = [Math.min(...logs) - 0.2, Math.max(...logs) + 0.5];
  const [y0, y1] = [Math.max(0, Math.min(...points.map((p) => p.low)) - 0.04), Math.min(1, Math.max(...points.map((p) => p.high)) + 0.04)];
  const x = (p) => L + ((Math.log10(p.usd) - x0) / (x1 - x0)) * (W - L - 10);
  const y = (v) => H - B - ((v - y0) / (y1 - y0 || 1)) * (H - B - T);
  const rows = [0, 0.25, 0.5, 0.75, 1].map((t) => y0 + t * (y1 - y0)).flatMap((v) => [svg("line", { x1: L, x2: W, y1: y(v), y2: y(v), class: "grid-line" }), label(L - 6, y(v) + 4, percent(v), "end")]);
  const ticks = Array.from({ length: Math.max(0, Math.floor(x1) - Math.ceil(x0) + 1) }, (_, i) => Math.ceil(x0) + i).map((e) => label(x({ usd: 10 ** e }), H - 12, dollars(10 ** e), "middle"));
  return { x, y, axes: [...rows, ...ticks] };
}

/** Those whose names fit without covering each other, the best first. */
function roomy(points, x, y) {
  const named = [];
  const room = (p) => named.every((q) => Math.abs(y(q.accuracy) - y(p.accuracy)) > 11 || Math.abs(x(q) - x(p)) > 170);
  for (const p of points.toSorted((a, b) => b.accuracy - a.accuracy)) if (room(p)) named.push(p);
  return named;
}

const short = (name) => (name.length > 26 ? `${name.slice(0, 25)}…` : name);

const label = (x, y, said, anchor) => text("text", said, { x, y, "text-anchor": anchor });

function text(tag, said, props = {}) {
  const el = svg(tag, props);
  el.textContent = said;
  return el;
}
