// Lines and bars over steps or days, by uPlot, in the colours of the page.
import { h } from "./dom.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const HUES = ["--h0", "--h1", "--h2", "--h3", "--h4", "--h5", "--h6", "--h7"];

/** A plot that follows its width and the theme. `series` is a list of [name, values, fixed hue?]. */
export async function plot(el, x, series, { bars = false, time = false, low, high, format = (v) => String(v), signal } = {}) {
  let made;
  const draw = () => {
    made?.destroy();
    el.replaceChildren();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    made = new globalThis.uPlot({
      width: Math.max(220, el.clientWidth), height: 190, cursor: { y: false, points: { size: 6 } }, legend: { live: true },
      scales: { x: { time, ...(bars ? { range: (u, min, max) => [min - 43_200, max + 43_200] } : {}) }, y: { range: (u, min, max) => [low ?? Math.min(0, min), high ?? (max > 0 ? max * 1.08 : 1)] } },
      axes: [axis, { ...axis, size: 56, values: (u, all) => all.map(format) }],
      series: [{ label: time ? "day" : "step" }, ...series.map(([label, , fixed], i) => ({
        label, stroke: colour(HUES[(fixed ?? i) % HUES.length]), width: 2, points: { show: x.length < 3 }, value: (u, v) => (v === null || v === undefined ? "–" : format(v)),
        ...(bars ? { paths: globalThis.uPlot.paths.bars({ size: [0.7, 60] }), fill: `${colour(HUES[(fixed ?? i) % HUES.length])}99` } : {}),
      }))],
    }, [x, ...series.map(([, values]) => values)], el);
  };
  draw();
  const watcher = new ResizeObserver(() => made.setSize({ width: Math.max(220, el.clientWidth), height: 190 }));
  watcher.observe(el);
  addEventListener("podium-theme", draw, { signal });
  signal?.addEventListener("abort", () => watcher.disconnect());
  return (newX, values) => made.setData([newX, ...values]);
}

export function figure(title, note = "") {
  const el = h("div.plot", { role: "img", "aria-label": `${title}. ${note}` });
  return { el, sheet: h("section.sheet", {}, h("h2", {}, title), note ? h("p.soft.small", {}, note) : null, el) };
}
