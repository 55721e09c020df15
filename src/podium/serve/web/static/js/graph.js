// A workflow as a graph: steps as nodes, access as edges, laid out by dagre.
import { Graph, layout } from "../vendor/dagre.js";
import { count, dollars, h, hue, place, plain, seconds, svg } from "./dom.js";

const ROOMY = { width: 228, height: 152 };
const SMALL = { width: 172, height: 74 };
const MANY_STEPS = 12;
const MANY_EDGES = 80;
const NARROW = 760;
const TAIL = 240;

export const SIGNS = { waiting: "waits", working: "works", done: "✓ done", failed: "✗ failed", skipped: "skipped" };

export class WorkflowGraph {
  constructor(steps, states, open) {
    this.states = states;
    this.size = steps.length > MANY_STEPS ? SMALL : ROOMY;
    this.nodes = states.map((state, i) => node(state, i, this.size, () => open(i)));
    this.edges = [];
    this.el = h("div.stage", {}, this.#draw(steps));
    states.forEach((_, i) => this.update(i));
  }

  #draw(steps) {
    const { width, height, nodes, edges } = arranged(steps, this.size);
    const tip = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 5, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0,0 8,4 0,8Z", class: "tip" }));
    const lines = svg("svg", { width, height, "aria-hidden": "true" }, svg("defs", {}, tip));
    for (const { from, to, path } of edges) {
      const line = svg("path", { d: path, class: "edge", "marker-end": "url(#tip)" });
      lines.append(line);
      this.edges.push({ from, to, line });
    }
    this.nodes.forEach((el, i) => place(el, { left: `${nodes[i].x}px`, top: `${nodes[i].y}px` }));
    return place(h("div.canvas", {}, lines, this.nodes), { width: `${width}px`, height: `${height}px` });
  }

  update(index) {
    fill(this.nodes[index], this.states[index], index);
    for (const { from, to, line } of this.edges) {
      if (from !== index && to !== index) continue;
      const dead = ["failed", "skipped"].includes(this.states[from].status);
      const flows = this.states[to].status === "working" && !dead;
      line.setAttribute("class", `edge${flows ? " flow" : dead ? " dead" : ""}`);
    }
  }
}

function arranged(steps, size) {
  const graph = new Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 20, ranksep: 38, marginx: 4, marginy: 4, ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  steps.forEach((_, i) => graph.setNode(String(i), { ...size }));
  for (const [from, to] of access(steps)) graph.setEdge(String(from), String(to));
  layout(graph);
  const { width, height } = graph.graph();
  const centre = steps.map((_, i) => graph.node(String(i)));
  const flip = backwards(centre) ? (x) => width - x : (x) => x;
  const nodes = centre.map(({ x, y }) => ({ x: flip(x) - size.width / 2, y: y - size.height / 2 }));
  const edges = graph.edges().map((e) => {
    const [from, to] = [centre[e.v], centre[e.w]];
    const bends = graph.edge(e).points.slice(1, -1).filter((p) => to.y - from.y > size.height * 2 && p.y > from.y + size.height / 2 && p.y < to.y - size.height / 2);
    const points = [{ x: from.x, y: from.y + size.height / 2 }, ...bends, { x: to.x, y: to.y - size.height / 2 - 5 }];
    return { from: Number(e.v), to: Number(e.w), path: curve(points.map((p) => ({ x: flip(p.x), y: p.y }))) };
  });
  return { width, height, nodes, edges };
}

/** Which step reads which. Where there are very many, only those that no longer way implies. */
function access(steps) {
  const reads = steps.map((step, i) => (step.access === "all" ? [...Array(i).keys()] : step.access));
  const all = reads.flatMap((from, to) => from.map((f) => [f, to]));
  if (all.length <= (innerWidth < NARROW ? steps.length : MANY_EDGES)) return all;
  const reach = reads.map((from) => new Set(from));
  reads.forEach((from, to) => from.forEach((f) => reach[f].forEach((g) => reach[to].add(g))));
  return all.filter(([f, to]) => !reads[to].some((other) => other !== f && reach[other].has(f)));
}

/** Whether side by side the later steps mostly stand left of the earlier ones. */
function backwards(centre) {
  let votes = 0;
  centre.forEach((a, i) => centre.slice(i + 1).forEach((b) => { if (a.y === b.y) votes += Math.sign(a.x - b.x); }));
  return votes > 0;
}

function curve([first, ...rest]) {
  let path = `M${first.x},${first.y}`;
  let last = first;
  for (const point of rest) {
    const middle = (last.y + point.y) / 2;
    path += ` C${last.x},${middle} ${point.x},${middle} ${point.x},${point.y}`;
    last = point;
  }
  return path;
}

function node(state, index, size, open) {
  const small = size === SMALL;
  const el = h("button.node", { type: "button", onclick: open },
    h("div.who", {}, h("span"), h("em")),
    h("div.task", { class: small ? "one" : "" }, plain(state.subtask)),
    h("div.again", { hidden: true }),
    small ? null : h("div.text"),
    h("div.foot"));
  return place(el, { width: `${size.width}px`, height: `${size.height}px` });
}

function fill(el, state, index) {
  const [name, sign] = el.querySelector(".who").children;
  el.className = `node ${state.status} ${hue(state.worker)}`;
  name.textContent = `${index + 1} · ${state.worker}`;
  sign.textContent = SIGNS[state.status];
  el.setAttribute("aria-label", `Step ${index + 1}, ${state.worker}, ${state.status}: ${plain(state.subtask).slice(0, 120)}`);
  const again = el.querySelector(".again");
  again.hidden = !state.notes.length;
  again.textContent = state.notes.at(-1) ?? "";
  again.title = state.notes.join("\n");
  const text = el.querySelector(".text");
  if (text) text.textContent = state.failure ? state.failure.message.slice(0, TAIL) : plain(state.text.slice(-TAIL));
  el.querySelector(".foot").textContent = foot(state, !text);
}

export function foot(state, short = false) {
  if (state.status === "waiting") return "";
  const parts = [];
  if (!short && state.usage) parts.push(`${count(state.usage.input + state.usage.output)} tokens`);
  else if (!short && state.status === "working" && state.text) parts.push(`~${count(Math.ceil(state.text.length / 4))} tokens`);
  parts.push(seconds(state.status === "working" ? (performance.now() - state.since) / 1000 : state.seconds));
  if (state.status === "done") parts.push(dollars(state.cost));
  if (state.replayed) parts.push("replayed");
  return parts.join(" · ");
}
