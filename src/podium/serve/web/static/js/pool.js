// The pool: how each worker is doing, what it costs, and whether it is asked at all.
import { follow, get, post } from "./api.js";
import { count, dollars, h, hue, percent, problem, seconds } from "./dom.js";

const KEPT = "podium-denied";
const HEALTH = { well: ["good", "well"], shaky: ["warn", "some failures"], failing: ["bad", "failing"], resting: ["bad", "resting after failures"], unknown: ["", "not asked yet"] };

/** The workers that questions from this page may not use. */
export const denied = () => new Set(JSON.parse(localStorage.getItem(KEPT) ?? "[]"));

function deny(name, off) {
  const names = denied();
  if (off) names.add(name);
  else names.delete(name);
  localStorage.setItem(KEPT, JSON.stringify([...names]));
}

export async function pool(main, params, signal) {
  const { workers, runs } = await get("pool", {}, signal);
  main.replaceChildren(h("h1", {}, "Pool"),
    h("p.lead", {}, runs ? `Figures over your last ${runs === 1 ? "run" : `${runs} runs`}. A denied worker is left out of every question that is asked from this page.` : "Nothing has run yet: the figures come with the first questions."),
    h("div.workers", {}, workers.map(card)));
}

function card(w) {
  const off = denied().has(w.name);
  const [tone, said] = HEALTH[w.health];
  const result = h("p.small", { role: "status" });
  const box = h("input", { type: "checkbox", checked: !off, role: "switch", onchange: () => {
    deny(w.name, !box.checked);
    el.classList.toggle("off", !box.checked);
  } });
  const check = h("button.small", { type: "button", onclick: () => probe(w.name, check, result) }, "Check now");
  const el = h("section.sheet.worker", { class: off ? "off" : "", "aria-label": w.name },
    h("div.row", {}, h("span.dot", { class: hue(w.name) }), h("h2.grow", {}, w.name), h("span.pill", { class: tone, title: w.reason }, said)),
    h("p.soft.small", {}, [w.kind, w.model !== w.name ? w.model : "", w.region].filter(Boolean).join(" · ")),
    w.description ? h("p.small", {}, w.description) : null,
    h("dl", {}, fact("Share of steps", percent(w.share)), fact("Steps", count(w.steps)), fact("Last steps", w.latest.length ? h("span.beads", { role: "img", "aria-label": `${w.latest.filter(Boolean).length} of ${w.latest.length} went well` }, w.latest.toReversed().map((ok) => h("i", { class: ok ? "" : "bad" }))) : "–"),
      fact("Errors", w.errors === null ? "–" : percent(w.errors, 1)), fact("Time, median", w.median === null ? "–" : seconds(w.median)), fact("Time, slowest 5 %", w.slow === null ? "–" : seconds(w.slow)),
      fact("Spent", dollars(w.usd)), fact("Price, in / out", w.program ? "free (a program)" : w.price ? `$${w.price.input} / $${w.price.output} per M` : "unknown"),
      w.fallback ? fact("Stands in", w.fallback) : null),
    w.health === "failing" || w.health === "resting" ? h("p.problem.small", {}, w.reason) : null,
    h("div.row", {}, h("label.chip", {}, box, "Asked"), h("span.grow"), w.program ? null : check), result);
  return el;
}

const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];

async function probe(name, button, result) {
  button.disabled = true;
  result.replaceChildren(h("span.soft.pulse", {}, "Asking for one word…"));
  const begun = performance.now();
  try {
    const { run } = await post("ask", { model: name, messages: [{ role: "user", content: "Reply with the word OK." }], max_tokens: 16 });
    let failure;
    await follow(run, (event) => { if (event.kind === "finished") failure = event.run.failure; });
    if (failure) throw new Error(failure.message);
    result.replaceChildren(h("span.pill.good", {}, `answered in ${seconds((performance.now() - begun) / 1000)}`));
  } catch (error) {
    result.replaceChildren(problem(error));
  }
  button.disabled = false;
}
