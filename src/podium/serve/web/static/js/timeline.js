// A run over time: what overlapped, and what waited for what it reads.
import { h, hue, place, seconds } from "./dom.js";

export function timeline(model, open) {
  const end = Math.max(0.001, model.run.seconds || 0, ...model.rounds.flatMap((r) => r.states.map((s) => s.started + s.seconds)));
  const x = (t) => `${(100 * t) / end}%`;
  const rows = [];
  let cursor = 0;
  model.rounds.forEach((round, r) => {
    if (model.rounds.length > 1) rows.push(h("div.lane.mark", {}, h("span", {}, `Round ${r + 1}`), h("div.track.none"), h("span")));
    const planning = round.drafts.reduce((sum, d) => sum + d.seconds, 0);
    if (planning) rows.push(lane("the Conductor plans", "", planning, bar(cursor, planning, x, { title: "planning" })));
    const begun = cursor + planning;
    round.states.forEach((s, i) => {
      const wait = s.started > begun ? place(h("i"), { left: x(begun), width: x(s.started - begun) }) : null;
      const name = `${i + 1} · ${s.worker}`;
      rows.push(lane(name, hue(s.worker), s.seconds, wait, bar(s.started, s.seconds, x, {
        class: `${hue(s.worker)} ${s.status}`, title: `${name}: ${seconds(s.seconds)}`, "aria-label": `Step ${name}, ${s.status}, from ${seconds(s.started)} for ${seconds(s.seconds)}`, onclick: () => open(r, i),
      })));
      cursor = Math.max(cursor, s.started + s.seconds);
    });
    cursor = Math.max(cursor, begun);
  });
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => h("span", {}, seconds(part * end)));
  return h("div.timeline", {}, rows, h("div.lane", {}, h("span"), h("div.ticks", {}, ticks), h("span")),
    h("p.soft.small", {}, "A bar is a step at work; the thin line before it is the time it waited for what it reads."));
}

const lane = (name, colour, took, ...inside) =>
  h("div.lane", {}, h("div.label", {}, h("span.dot", { class: colour, "aria-hidden": "true" }), h("span", { title: name }, name)), h("div.track", {}, inside), h("span.num.soft", {}, seconds(took)));

const bar = (from, length, x, props) => place(h("button", { type: "button", "aria-label": props.title, ...props, class: `span ${props.class ?? ""}` }), { left: x(from), width: x(length) });
