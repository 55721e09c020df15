// What it cost: by day, model and worker, and how much of the limits is left.
import { get } from "./api.js";
import { count, dollars, h, worker } from "./dom.js";
import { figure, plot } from "./plots.js";

export async function spend(main, params, signal) {
  const found = await get("spend", {}, signal);
  const { el, sheet } = figure("Dollars a day", found.days.length ? `${count(found.counted)} runs in all` : "Nothing was spent yet.");
  main.replaceChildren(...[h("h1", {}, "Spend"), h("p.lead", {}, found.keys.length ? "What everybody’s runs cost, counted in UTC days." : "What your runs cost, counted in UTC days."), limits(found), sheet,
    found.keys.length ? table("By key", found.keys, (k) => [k.name || "without a key", k.daily === null && k.monthly === null ? null : h("span.soft.small", {}, ` ${budgets(k)}`)], "of all keys, with what they have left") : null,
    h("div.grid", {}, table("By model", found.models, (m) => m.name, `over ${count(found.counted)} runs`), table("By worker", found.workers, (w) => worker(w.name), `over the last ${found.recent} runs`))].filter(Boolean));
  if (found.days.length) {
    const [days, spent] = calendar(found.days);
    await plot(el, days, [["dollars", spent]], { bars: true, time: true, format: (v) => dollars(v), signal });
  }
}

/** Every day from the first to today, two weeks at least; uPlot wants seconds. */
function calendar(known) {
  const at = (day) => Date.parse(`${day}T12:00:00Z`) / 1000;
  const spent = new Map(known.map((d) => [at(d.day), d.usd]));
  const today = at(new Date().toISOString().slice(0, 10));
  const days = [];
  for (let day = Math.min(at(known[0].day), today - 13 * 86400); day <= today; day += 86400) days.push(day);
  return [days, days.map((day) => spent.get(day) ?? 0)];
}

function limits({ key, process, run }) {
  const rows = [
    key ? [`Key “${key.name}” today`, key.today, key.daily] : null,
    key ? [`Key “${key.name}” this month`, key.this_month, key.monthly] : null,
    process ? ["This server since it started", process.spent, process.limit] : null,
  ].filter(Boolean);
  const each = key?.per_run ?? run.limit;
  return h("section.sheet", {}, h("h2", {}, "Against the limits"), h("div.grid", {}, rows.map(([name, used, limit]) => h("div", {},
    h("div.row", {}, h("span.grow", {}, name), h("b.num", {}, dollars(used)), h("span.soft", {}, limit ? `of ${dollars(limit)}` : "no limit")), limit ? meter(used / limit, name) : null))),
    key?.held ? h("p.soft.small", {}, `${dollars(key.held)} are set aside for runs under way.`) : null,
    h("p.soft.small", {}, each ? `One run may spend ${dollars(each)} at most.` : "A run has no limit of its own."));
}

const budgets = (k) => [[k.today, k.daily, "today"], [k.this_month, k.monthly, "this month"]].filter(([, limit]) => limit !== null).map(([used, limit, span]) => `${dollars(used)} of ${dollars(limit)} ${span}`).join(", ");

function meter(part, name) {
  const bar = h("i");
  bar.style.width = `${Math.min(100, 100 * part)}%`;
  return h("div.meter", { class: part > 0.9 ? "over" : "", role: "meter", "aria-label": name, "aria-valuenow": String(Math.round(100 * part)), "aria-valuemin": "0", "aria-valuemax": "100" }, bar);
}

function table(title, rows, name, note) {
  const most = Math.max(1e-12, ...rows.map((r) => r.usd));
  return h("section.sheet", {}, h("h2", {}, title), h("p.soft.small", {}, note), rows.length ? h("table", {}, h("tbody", {}, rows.map((r) => {
    const bar = h("i");
    bar.style.width = `${(100 * r.usd) / most}%`;
    return h("tr", {}, h("td", {}, name(r), h("div.meter", {}, bar)), h("td.n", {}, `${count(r.tokens)} tokens`), h("td.n", {}, dollars(r.usd)));
  }))) : h("p.soft", {}, "Nothing yet."));
}
