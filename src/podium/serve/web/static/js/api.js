// Talking to the server. The key stays in this tab: never in an address, never in a cookie.
import { h } from "./dom.js";

let key = sessionStorage.getItem("podium-key") ?? "";

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const hasKey = () => key !== "";

export function forgetKey() {
  key = "";
  sessionStorage.removeItem("podium-key");
}

async function send(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
    const response = await fetch(path, { ...options, headers });
    if (response.status !== 401) return response;
    await askForKey(key ? "This key is not known here." : "");
  }
}

async function checked(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Refused(body.error?.message ?? `the server answered ${response.status}`, response.status);
}

export async function get(path, params = {}, signal = undefined) {
  const given = Object.entries(params).filter(([, v]) => v !== "" && v !== undefined && v !== null);
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  return (await checked(await send(`/web/api/${path}${query}`, { signal }))).json();
}

export async function post(path, body = {}) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await checked(await send(`/web/api/${path}`, options))).json();
}

let known;

/** Who asks and what they may use: found out once. */
export const me = () => (known ??= get("me").catch((error) => {
  known = undefined;
  throw error;
}));

/** Something of it has changed: whoever asks next finds out anew. */
export const forgetMe = () => {
  known = undefined;
};

let asking;

function askForKey(complaint) {
  asking ??= new Promise((resolve) => {
    const input = h("input", { type: "password", autocomplete: "off", required: true, id: "key", placeholder: "pk-…" });
    const form = h("form", { method: "dialog", onsubmit: (event) => {
      event.preventDefault();
      key = input.value.trim();
      sessionStorage.setItem("podium-key", key);
      dialog.close();
    } },
      h("h2", {}, "A key, please"),
      h("p.soft", {}, "This server answers to those who have a key. It stays in this tab until you close it."),
      complaint ? h("p.problem", { role: "alert" }, complaint) : null,
      h("label.field", { for: "key" }, "Key", input),
      h("p"), h("div.row.end", {}, h("button.main", { type: "submit" }, "Enter")));
    const dialog = h("dialog", { "aria-label": "A key, please", oncancel: (e) => e.preventDefault(), onclose: () => {
      dialog.remove();
      asking = undefined;
      resolve();
    } }, form);
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Every event of a run, each once; a lost connection is taken up again where it broke off. */
export async function follow(id, hear, { signal, state = () => {} } = {}) {
  let last = 0;
  let lost = 0;
  while (!signal?.aborted) {
    try {
      const response = await send(`/web/api/runs/${id}/events`, { signal, cache: "no-store", headers: { "last-event-id": String(last) } });
      if (response.status === 410 || (response.status === 404 && lost > 5)) return;
      if (response.status !== 421 && response.status !== 404) {
        await checked(response);
        state("open");
        for await (const { number, event } of events(response.body)) {
          lost = 0;
          last = number;
          hear(event);
          if (event.kind === "over") return;
          if (event.kind === "finished") return;
        }
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof Refused && error.status < 500) throw error;
    }
    state("lost");
    lost += 1;
    await pause(Math.min(5000, 120 * 1.6 ** Math.min(lost, 9)));
  }
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        const found = /^id: (\d+)\ndata: (.*)$/s.exec(frame);
        if (found) yield { number: Number(found[1]), event: JSON.parse(found[2]) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
