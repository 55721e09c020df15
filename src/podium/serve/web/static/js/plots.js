// Lines, bars and layers over steps or days, by uPlot, in the colours of the page.
import { h } from "./dom.js";

const HEIGHT = 190;
const FEW = 8;
const WINDOW = 5;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const hueOf = (number) => colour(number === null ? "--soft" : `--h${number % 12}`);

/**
 * A plot that follows its width and the theme. `series` is a list of [name, values, hue]. As
 * `layers` they stand on each other; when `smooth` each is drawn faint under its own running mean.
 * What it returns takes new data; `mark` puts a line at a place.
 */
export function plot(el, x, series, { bars = false, layers = false, smooth = false, time = false, low, high, height = HEIGHT, format = (v) => String(v), pick, sync, signal } = {}) {
  let made;
  let marked = null;
  const shape = { bars, layers, smooth, time, low, high, height, format, sync };
  const draw = () => {
    made?.destroy();
    el.replaceChildren();
    const own = smooth && x.length > FEW ? shape : { ...shape, smooth: false };
    made = new globalThis.uPlot({ ...settings(el, x, series, own), hooks: { draw: [(u) => line(u, marked)], setCursor: [(u) => u.cursor.idx ?? latest(u)] } }, data(x, series, own), el);
    latest(made);
    if (pick) made.over.addEventListener("click", () => made.cursor.idx !== null && made.cursor.idx !== undefined && pick(x[made.cursor.idx]));
  };
  draw();
  const watcher = new ResizeObserver(() => made.setSize({ width: wide(el), height }));
  watcher.observe(el);
  addEventListener("podium-theme", draw, { signal });
  signal?.addEventListener("abort", () => {
    watcher.disconnect();
    made.destroy();
  });
  const feed = (newX, values) => {
    x = newX;
    series = series.map(([name, , hue], i) => [name, values[i], hue]);
    draw();
  };
  return { feed, mark: (at) => { marked = at; made.redraw(false, false); } };
}

const wide = (el) => Math.max(220, el.clientWidth);

/** Where nobody points, the legend says how it stands now. */
const latest = (u) => u.data[0].length && u.setLegend({ idx: u.data[0].length - 1 }, false);

function line(u, at) {
  if (at === null) return;
  const { ctx, bbox } = u;
  const left = u.valToPos(at, "x", true);
  ctx.save();
  ctx.strokeStyle = colour("--ink");
  ctx.globalAlpha = 0.55;
  ctx.setLineDash([4, 4]);
  ctx.beginPath();
  ctx.moveTo(left, bbox.top);
  ctx.lineTo(left, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

function data(x, series, { layers, smooth }) {
  const values = series.map(([, v]) => v);
  if (layers) return [x, ...piled(values)];
  return [x, ...(smooth ? values.flatMap((v) => [v, mean(v)]) : values)];
}

/** The uppermost layer first, because each is filled down to the ground. */
function piled(values) {
  const sums = [];
  values.forEach((layer, i) => sums.push(layer.map((v, j) => (v ?? 0) + (i ? sums[i - 1][j] : 0))));
  return sums.toReversed();
}

export function mean(values) {
  return values.map((v, i) => {
    const near = values.slice(Math.max(0, i - WINDOW + 1), i + 1).filter((n) => n !== null && n !== undefined);
    return near.length ? near.reduce((a, b) => a + b, 0) / near.length : null;
  });
}

function settings(el, x, series, { bars, layers, smooth, time, low, high, height, format, sync }) {
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const drawn = layers ? series.toReversed().map((s, i) => layer(s, series.length - 1 - i, format)) : series.flatMap((s, i) => (smooth ? [faint(s, i), curve(s, i, format, x)] : [curve(s, i, format, x, bars)]));
  return {
    width: wide(el), height, legend: { live: true },
    cursor: { y: false, points: { size: 6, show: !layers }, ...(sync ? { sync: { key: sync, setSeries: false } } : {}) },
    scales: { x: { time, ...(bars ? { range: (u, min, max) => [min - 43_200, max + 43_200] } : {}) }, y: { range: (u, min, max) => [low ?? Math.min(0, min), high ?? (max > 0 ? max * 1.08 : 1)] } },
    axes: [time ? axis : { ...axis, incrs: WHOLE }, { ...axis, size: 56, values: (u, all) => all.map(format) }],
    series: [{ label: time ? "day" : "step" }, ...drawn],
  };
}

const said = (format, v) => (v === null || v === undefined ? "–" : format(v));

const curve = ([label, , hue], i, format, x, bars = false) => ({
  label, stroke: hueOf(hue ?? i), width: 2, points: { show: x.length < 3 }, value: (u, v) => said(format, v),
  ...(bars ? { paths: globalThis.uPlot.paths.bars({ size: [0.7, 60] }), fill: `${hueOf(hue ?? i)}99` } : {}),
});

const faint = ([label, , hue], i) => ({ label, class: "faint", stroke: `${hueOf(hue ?? i)}55`, width: 1, points: { show: false } });

const layer = ([label, values, hue], i, format) => ({
  label, stroke: colour("--sheet"), width: 1, fill: hueOf(hue === undefined ? i : hue), points: { show: false }, value: (u, v, s, at) => said(format, at === null ? null : values[at]),
});

export function figure(title, note = "", props = {}) {
  const el = h("div.plot", { role: "img", "aria-label": `${title}. ${note}` });
  return { el, sheet: h("section.sheet", props, h("h2", {}, title), note ? h("p.soft.small", {}, note) : null, el) };
}
