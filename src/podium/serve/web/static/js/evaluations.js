// Evaluations: each strategy's figures, accuracy against cost, and the full report.
import { get, post } from "./api.js";
import { dollars, h, percent, problem, seconds, svg } from "./dom.js";
import { empty } from "./training.js";

export async function evaluations(main, params, signal) {
  const found = await get("evaluations", {}, signal);
  const list = h("div");
  main.replaceChildren(h("h1", {}, "Evaluations"), h("p.lead", {}, "What podium eval found: how often each strategy is right, and what that costs. The report opens every question down to its steps."), list);
  if (!found.length) list.append(empty("podium eval --task math500 --strategy conductor,best-single --out runs/NAME"));
  for (const { name } of found) {
    const sheet = h("section.sheet", { "aria-label": name }, h("h2", {}, name), h("p.soft.pulse", {}, "Counting…"));
    list.append(sheet);
    get("evaluations/figures", { name }, signal).then((body) => fill(sheet, name, body), (error) => signal.aborted || sheet.replaceChildren(h("h2", {}, name), problem(error)));
  }
}

function fill(sheet, name, { reports, problem: wrong }) {
  const open = h("button", { type: "button", onclick: () => openReport(name, open) }, "Open the report");
  sheet.replaceChildren(...[h("div.row", {}, h("h2.grow", {}, name), reports.length ? open : null), wrong ? h("p.soft", {}, wrong) : null,
    ...reports.map((r) => h("div", {}, h("h3", {}, r.title), h("div.grid.figures", {}, front(r.figures), h("div.scroll", {}, table(r.figures))), r.doubts.map((d) => h("p.note.small", {}, d))))].filter(Boolean));
}

async function openReport(name, button) {
  button.disabled = true;
  const tab = window.open("about:blank");
  try {
    const { ticket } = await post(`evaluations/ticket?${new URLSearchParams({ name })}`);
    tab.location.href = `/web/report/${ticket}`;
  } catch (error) {
    tab.close();
    button.after(problem(error));
  }
  button.disabled = false;
}

const table = (figures) => h("table.small", {}, h("thead", {}, h("tr", {}, ["Strategy", "Right", "95 %", "$ / question", "Calls", "Time", "n"].map((c, i) => h(i ? "th.n" : "th", {}, c)))),
  h("tbody", {}, Object.entries(figures).sort(([, a], [, b]) => b.accuracy - a.accuracy).map(([name, f]) => h("tr", {}, h("td", {}, name), h("td.n", {}, percent(f.accuracy, 1)), h("td.n.soft", {}, `${percent(f.low, 0)} – ${percent(f.high, 0)}`),
    h("td.n", {}, dollars(f.usd_per_question)), h("td.n", {}, f.calls_per_question.toFixed(1)), h("td.n", {}, seconds(f.seconds_per_question)), h("td.n", {}, String(f.n))))));

/** Accuracy against cost, with intervals; the line joins those that no other one beats in both. */
function front(figures) {
  const [W, H, L, B, T] = [460, 270, 46, 34, 14];
  const points = Object.entries(figures).map(([name, f]) => ({ name, ...f, usd: Math.max(f.usd_per_question, 1e-7) }));
  const logs = points.map((p) => Math.log10(p.usd));
  const [x0, x1] = [Math.min(...logs) - 0.2, Math.max(...logs) + 0.5];
  const [y0, y1] = [Math.max(0, Math.min(...points.map((p) => p.low)) - 0.04), Math.min(1, Math.max(...points.map((p) => p.high)) + 0.04)];
  const x = (p) => L + ((Math.log10(p.usd) - x0) / (x1 - x0)) * (W - L - 10);
  const y = (v) => H - B - ((v - y0) / (y1 - y0 || 1)) * (H - B - T);
  const best = points.toSorted((a, b) => a.usd - b.usd || b.accuracy - a.accuracy).filter((p, i, all) => all.slice(0, i).every((q) => q.accuracy < p.accuracy));
  const axes = [0, 0.25, 0.5, 0.75, 1].map((t) => y0 + t * (y1 - y0)).flatMap((v) => [svg("line", { x1: L, x2: W, y1: y(v), y2: y(v), class: "grid-line" }), label(L - 6, y(v) + 4, percent(v), "end")]);
  const ticks = Array.from({ length: Math.floor(x1) - Math.ceil(x0) + 1 }, (_, i) => Math.ceil(x0) + i).map((e) => label(x({ usd: 10 ** e }), H - 12, dollars(10 ** e), "middle"));
  const named = [];
  const room = (p) => named.every((q) => Math.abs(y(q.accuracy) - y(p.accuracy)) > 11 || Math.abs(x(q) - x(p)) > 170);
  for (const p of points.toSorted((a, b) => b.accuracy - a.accuracy)) if (room(p)) named.push(p);
  const marks = points.flatMap((p, i) => [
    svg("line", { x1: x(p), x2: x(p), y1: y(p.low), y2: y(p.high), class: `whisker hue${i % 8}` }),
    svg("circle", { cx: x(p), cy: y(p.accuracy), r: 5, class: `mark hue${i % 8}` }, title(`${p.name}: ${percent(p.accuracy, 1)} for ${dollars(p.usd_per_question)}`)),
    named.includes(p) ? label(x(p) + (x(p) > W * 0.66 ? -9 : 9), y(p.accuracy) + 4, short(p.name), x(p) > W * 0.66 ? "end" : "start") : "",
  ]);
  const line = svg("polyline", { points: best.map((p) => `${x(p)},${y(p.accuracy)}`).join(" "), class: "front" });
  return svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "scatter", role: "img", "aria-label": "Accuracy against dollars per question, with intervals and the Pareto front" }, ...axes, ...ticks, line, ...marks);
}

const short = (name) => (name.length > 26 ? `${name.slice(0, 25)}…` : name);

function label(x, y, text, anchor) {
  const el = svg("text", { x, y, "text-anchor": anchor });
  el.textContent = text;
  return el;
}

function title(text) {
  const el = svg("title");
  el.textContent = text;
  return el;
}
