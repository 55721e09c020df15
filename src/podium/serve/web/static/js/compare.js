// Two runs side by side: what each cost, how each went about it, what each said.
import { get } from "./api.js";
import { count, dollars, h, seconds } from "./dom.js";
import { RunModel, RunView } from "./run.js";

const ROWS = [
  ["Strategy", (r) => r.strategy],
  ["State", (r) => (r.failure ? (r.answer === null ? `failed: ${r.failure.kind}` : `cut short: ${r.failure.kind}`) : "answered")],
  ["Cost", (r) => dollars(r.cost), (r) => r.cost],
  ["Time", (r) => seconds(r.seconds), (r) => r.seconds],
  ["Tokens", (r) => count(r.usage.input + r.usage.output), (r) => r.usage.input + r.usage.output],
  ["Rounds", (r) => r.rounds.length],
  ["Steps", (r) => r.rounds.reduce((n, round) => n + round.results.length, 0)],
  ["Workers", (r) => [...new Set(r.rounds.flatMap((round) => round.results.map((s) => s.worker)))].join(", ")],
];

export async function compare(main, params, signal, ids) {
  const shelf = params.get("shelf") ?? undefined;
  const pair = await Promise.all(ids.slice(0, 2).map(async (id) => ({ ...(await get(`runs/${id}`, { shelf }, signal)), shelf })));
  const [back, below] = shelf ? [`#/evaluations/${encodeURIComponent(shelf)}`, `#/evaluations/${encodeURIComponent(shelf)}/runs/`] : ["#/runs", "#/runs/"];
  const same = pair[0].question === pair[1].question;
  main.replaceChildren(
    h("p.small", {}, h("a", { href: back }, `← ${shelf ?? "Runs"}`)),
    h("h1", {}, "Two runs side by side"),
    same ? h("div.asked", {}, h("div", { tabindex: "0" }, pair[0].question)) : h("p.note", {}, "They answer different questions."),
    h("div.sheet.scroll", {}, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), pair.map((r, i) => h("th", {}, h("a", { href: `${below}${r.id}` }, `Run ${"AB"[i]}`))))),
      h("tbody", {}, ROWS.map(([name, read, weigh]) => h("tr", {}, h("th", { scope: "row" }, name), pair.map((r) => h("td", {}, String(read(r)), weigh ? less(weigh, r, pair) : null))))))),
    h("div.pair", {}, pair.map((run, i) => h("div", {}, h("h2", {}, `Run ${"AB"[i]}`), same ? null : h("p.words", {}, run.question), new RunView(new RunModel(run)).el))));
}

function less(weigh, run, pair) {
  const [mine, most] = [weigh(run), Math.max(...pair.map(weigh))];
  return mine < most ? h("span.pill.good", {}, ` −${Math.round(100 * (1 - mine / most))} %`) : null;
}
