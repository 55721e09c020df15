// One step, or one draft, down to its exact messages: a drawer over the page.
import { get } from "./api.js";
import { count, dollars, h, hue, plain, problem, seconds } from "./dom.js";
import { SIGNS, WorkflowGraph, foot } from "./graph.js";
import { render } from "./markdown.js";

export function drawer(title, ...children) {
  const dialog = h("dialog.drawer", { "aria-label": title, onclose: () => dialog.remove(), onclick: (e) => e.target === dialog && dialog.close() }, ...children);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

const closing = () => h("button.quiet", { type: "button", "aria-label": "Close", onclick: (e) => e.target.closest("dialog").close() }, "✕");

export async function openStep(run, round, index, state) {
  const body = h("div", {}, h("p.soft.pulse", {}, "Fetching its messages…"));
  const title = `Step ${index + 1} of round ${round + 1}`;
  drawer(title, h("div.step-head", {}, h("span.dot", { class: hue(state.worker) }), h("h2", {}, `${title}: ${state.worker}`), closing()),
    h("p.row", {}, h("span.pill", { class: { done: "good", failed: "bad", working: "live" }[state.status] ?? "" }, SIGNS[state.status]), h("span.soft.small", {}, foot(state))), body);
  try {
    body.replaceChildren(...stepParts(state.status === "working" || state.status === "waiting" ? live(state) : await get(`runs/${run.id}/steps/${round}/${index}`, { shelf: run.shelf }), state.notes));
  } catch (error) {
    body.replaceChildren(problem(error), ...stepParts(live(state), state.notes));
  }
}

const live = (state) => ({ step: state.step, output: state.text, reasoning: state.reasoning, failure: state.failure, messages: [], calls: [], usage: state.usage, inner: state.inner });

export function stepParts(step, notes = []) {
  const words = h("div.words");
  if (step.output) render(words, step.output);
  return [
    h("section", {}, h("h3", {}, "Subtask"), h("p.words", {}, plain(step.step.subtask)), h("p.soft.small", {}, `Reads ${reads(step.step.access)}.`)),
    notes.length ? h("section", {}, h("h3", {}, "What happened on the way"), h("ul", {}, notes.map((note) => h("li", {}, note)))) : null,
    step.failure ? h("section", {}, h("h3", {}, "Failure"), h("p.problem", {}, `${step.failure.kind}: ${step.failure.message} (blame: ${step.failure.blame})`)) : null,
    step.output ? h("section", {}, h("h3", {}, "Output"), words) : null,
    step.calls?.length ? h("section", {}, h("h3", {}, "Asked for tools"), step.calls.map((c) => h("pre.raw", {}, `${c.name} ${c.arguments}`))) : null,
    step.reasoning ? h("section", {}, h("details.message", {}, h("summary", {}, "Reasoning"), h("pre.raw", { tabindex: "0" }, plain(step.reasoning)))) : null,
    step.usage ? h("section", {}, h("h3", {}, "Tokens"), h("p.soft", {}, spent(step))) : null,
    step.inner ? inside(step.inner) : null,
    step.messages?.length ? h("section", {}, h("h3", {}, "The exact messages it was sent"), step.messages.map(message)) : null,
  ].filter(Boolean);
}

const reads = (access) => (access === "all" ? "everything before it" : access.length ? `step ${access.map((i) => i + 1).join(", ")}` : "nothing but the question");

const spent = ({ usage, cost }) =>
  [`${count(usage.input)} in`, usage.cached ? `${count(usage.cached)} of them cached` : "", `${count(usage.output)} out`, usage.reasoning ? `${count(usage.reasoning)} of them reasoning` : "", dollars(cost)].filter(Boolean).join(" · ");

function inside(run) {
  const graphs = run.rounds.filter((r) => r.results.length).map((round) => {
    const states = round.results.map((r) => ({ ...r, subtask: r.step.subtask, status: r.failure ? "failed" : "done", text: r.output, notes: [] }));
    return new WorkflowGraph(round.results.map((r) => r.step), states, (i) => drawer(`Step ${i + 1} inside`, h("div.step-head", {}, h("h2", {}, `Step ${i + 1} inside: ${states[i].worker}`), closing()), stepParts(round.results[i]))).el;
  });
  return h("section", {}, h("h3", {}, `The run inside it, by ${run.strategy}`), graphs);
}

export function message(m) {
  const images = m.images?.length ? h("p.soft.small", {}, `with ${m.images.length} images`) : null;
  return h("div.message", {}, h("h4", {}, m.role), images, h("pre.raw", { tabindex: "0" }, plain(m.content)));
}

export async function openDraft(run, round, drafts) {
  const body = h("div", {}, h("p.soft.pulse", {}, "Fetching…"));
  drawer(`Draft of round ${round + 1}`, h("div.step-head", {}, h("h2", {}, `What the Conductor wrote in round ${round + 1}`), closing()), body);
  const found = await Promise.all(drafts.map((draft, i) => get(`runs/${run.id}/drafts/${round}/${i}`, { shelf: run.shelf }).catch(() => draft)));
  body.replaceChildren(...found.flatMap((draft) => [
    h("section", {},
      h("p.row", {}, h("span.pill", { class: draft.complaint ? "warn" : "good" }, draft.complaint ? "rejected" : "performed"), h("span.soft.small", {}, `${seconds(draft.seconds)} · ${spent(draft)}`)),
      draft.complaint ? h("p.note", {}, draft.complaint) : null,
      h("pre.raw", { tabindex: "0" }, plain(draft.text)),
      draft.messages?.length ? h("details.message", {}, h("summary", {}, "The exact messages it was sent"), draft.messages.map(message)) : null),
  ]));
}
