// The pool: how each worker is doing, what it costs, and whether it is asked at all.
import { follow, forgetMe, get, post } from "./api.js";
import { ago, count, dollars, h, hue, percent, problem, seconds } from "./dom.js";

const KEPT = "podium-left-out";
const HEALTH = { well: ["good", "well"], shaky: ["warn", "some failures"], failing: ["bad", "failing"], resting: ["bad", "resting after failures"], unknown: ["", "not asked yet"] };

/** The workers that somebody who does not run the server leaves out of their own questions. */
export const left = () => new Set(JSON.parse(localStorage.getItem(KEPT) ?? "[]"));

function leave(name, off) {
  const names = left();
  if (off) names.add(name);
  else names.delete(name);
  localStorage.setItem(KEPT, JSON.stringify([...names]));
}

export async function pool(main, params, signal) {
  const { workers, runs, operator } = await get("pool", {}, signal);
  const over = runs ? `Figures over the last ${runs === 1 ? "run" : `${runs} runs`}.` : "Nothing has run yet: the figures come with the first questions.";
  const meaning = operator ? "A worker that you deny gets no step of any request from here on, whoever asks, until you allow it again." : "Those that you switch off are left out of the questions that you ask from this browser.";
  main.replaceChildren(h("h1", {}, "Pool"), h("p.lead", {}, `${over} ${meaning}`), h("div.workers", {}, workers.map((w) => card(w, operator))));
}

/** Who is asked: for those who run the server an order to all of it, for others a wish of their own. */
function switches(w, operator, { el, result, check }) {
  const box = h("input", { type: "checkbox", role: "switch", checked: operator ? !w.denied : !w.denied && !left().has(w.name), disabled: !operator && Boolean(w.denied) });
  const name = h("span");
  const show = () => {
    name.textContent = box.checked ? "Asked" : operator ? "Denied to everybody" : w.denied ? "Denied by an operator" : "Left out";
    el.classList.toggle("off", !box.checked);
    check.hidden = !box.checked;
  };
  box.addEventListener("change", async () => {
    if (operator) await order(w, !box.checked, box, result);
    else leave(w.name, !box.checked);
    show();
  });
  show();
  return h("label.chip", { title: operator ? "Switch it off to deny it to everybody" : "" }, box, name);
}

async function order(w, denied, box, result) {
  box.disabled = true;
  try {
    await post("pool/deny", { worker: w.name, denied });
    forgetMe();
    result.parentElement.querySelector(".note")?.remove();
    result.replaceChildren(h("span.soft", {}, denied ? "No later request is given it; runs under way go on." : "It is asked again."));
  } catch (error) {
    box.checked = denied;
    result.replaceChildren(problem(error));
  }
  box.disabled = false;
}

function card(w, operator) {
  const [tone, said] = HEALTH[w.health];
  const result = h("p.small", { role: "status" });
  const check = h("button.small", { type: "button", onclick: () => probe(w.name, check, result) }, "Check now");
  const el = h("section.sheet.worker", { "aria-label": w.name },
    h("div.row", {}, h("span.dot", { class: hue(w.name) }), h("h2.grow", {}, w.name), h("span.pill", { class: tone, title: w.reason }, said)),
    h("p.soft.small", {}, [w.kind, w.model !== w.name ? w.model : "", w.region].filter(Boolean).join(" · ")),
    w.description ? h("p.small", {}, w.description) : null,
    h("dl", {}, fact("Share of steps", percent(w.share)), fact("Steps", count(w.steps)), fact("Last steps", w.latest.length ? h("span.beads", { role: "img", "aria-label": `${w.latest.filter(Boolean).length} of ${w.latest.length} went well` }, w.latest.toReversed().map((ok) => h("i", { class: ok ? "" : "bad" }))) : "–"),
      fact("Errors", w.errors === null ? "–" : percent(w.errors, 1)), fact("Time, median", w.median === null ? "–" : seconds(w.median)), fact("Time, slowest 5 %", w.slow === null ? "–" : seconds(w.slow)),
      fact("Spent", dollars(w.usd)), fact("Price, in / out", w.program ? "free (a program)" : w.price ? `$${w.price.input} / $${w.price.output} per M` : "unknown"),
      w.fallback ? fact("Stands in", w.fallback) : null),
    w.health === "failing" || w.health === "resting" ? h("p.problem.small", {}, w.reason) : null,
    w.denied?.at ? h("p.note.small", {}, `Denied ${ago(w.denied.at)}${w.denied.operator ? ` by ${w.denied.operator}` : ""}.`) : null);
  el.append(h("div.row", {}, switches(w, operator, { el, result, check }), h("span.grow"), w.program ? null : check), result);
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
