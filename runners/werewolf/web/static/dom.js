// Builds elements node by node, so that text cannot become markup; `tidy` removes control characters from text.

/** An element. props: attributes, `class`, `on…` listeners, `style` as an object; children: nodes, texts, lists, null. */
export function h(tag, props = {}, ...children) {
  return build(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, entry] of Object.entries(value)) element.style.setProperty(key, entry);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** What the browser stores under a key, in this tab alone with "sessionStorage"; null if there is nothing, or if it blocks storage. */
export function stored(key, area = "localStorage") {
  try { return window[area].getItem(key); } catch { return null; }
}

/** Stores a value, or removes it if it is null; whether the browser allows it. */
export function store(key, value, area = "localStorage") {
  try {
    if (value === null) window[area].removeItem(key); else window[area].setItem(key, value);
    return true;
  } catch { return false; }
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;
const INVISIBLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u200b\u2060\ufeff\u{e0000}-\u{e007f}]/gu;
const PILES = /(\p{M}{3})\p{M}+/gu;

/** A model's or a person's text as it may be shown: direction marks visible, no piles of combining marks. */
export function tidy(text) {
  return String(text).replace(BIDI, "␣").replace(INVISIBLE, "").replace(PILES, "$1");
}

/** Copies a text; whether it could. Pages from other machines over http have no `navigator.clipboard`. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const field = h("textarea", { value: text, readonly: true });
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  return copied;
}

const SHORT = 600;

/** A text of unknown origin: isolated, cut where it is very long, with a button for the rest. */
export function quoted(text, labels, tag = "span") {
  const whole = tidy(text);
  const element = h(tag, { class: "said", dir: "auto" }, whole.slice(0, SHORT));
  if (whole.length > SHORT) {
    const more = h("button", { type: "button", class: "link", onclick: (event) => {
      event.stopPropagation();
      replace(element, whole.slice(0, 20000), whole.length > 20000 ? ` … (${whole.length})` : null);
    } }, `… ${labels.more} (${whole.length})`);
    element.append(more);
  }
  return element;
}

/** JSON from the server; throws an Error that `explain` puts into words. */
export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return answered(path, await fetch(query.size ? `${path}?${query}` : path, { headers: { Accept: "application/json" } }));
}

export async function send(path, data) {
  return answered(path, await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Werewolf": "1" },
    body: JSON.stringify(data),
  }));
}

async function answered(path, response) {
  const text = await response.text();
  let data = null;
  try { data = JSON.parse(text); } catch { /* a refusal in words */ }
  if (!response.ok) throw Object.assign(new Error(data?.problem ?? (text.slice(0, 300) || response.statusText)), { status: response.status, path });
  return data;
}

/**
 * Server-sent events; reconnects by itself until `end`. Returns a function that stops it.
 * Disconnected while the page is hidden: a browser opens at most six connections to a server, for all its tabs.
 */
export function listen(address, onData, onState = () => {}) {
  let source = null, stopped = false, timer = null;
  const open = () => {
    source = new EventSource(typeof address === "function" ? address() : address);
    source.onopen = () => onState("open");
    source.onmessage = (event) => onData(JSON.parse(event.data));
    source.addEventListener("end", () => { stop(); onState("end"); });
    source.onerror = () => {
      source.close();
      if (stopped) return;
      onState("away");
      timer = setTimeout(open, 1500);
    };
  };
  const close = () => { clearTimeout(timer); source?.close(); };
  const shownOrHidden = () => { close(); if (!document.hidden) open(); };
  const stop = () => { stopped = true; close(); document.removeEventListener("visibilitychange", shownOrHidden); };
  document.addEventListener("visibilitychange", shownOrHidden);
  if (!document.hidden) open();
  return stop;
}

const ICONS = {
  first: "M5 5v14M19 5 9 12l10 7z", last: "M19 5v14M5 5l10 7-10 7z", back: "M15 5 8 12l7 7", next: "M9 5l7 7-7 7", play: "M7 4.5v15l12-7.5z", pause: "M8 5v14M16 5v14",
  link: "M10 14a4 4 0 0 0 5.7 0l3-3a4 4 0 0 0-5.7-5.7l-1 1M14 10a4 4 0 0 0-5.7 0l-3 3a4 4 0 0 0 5.7 5.7l1-1", lock: "M7 11V8a5 5 0 0 1 10 0v3M5 11h14v9H5z",
  moon: "M19 14.5A8 8 0 0 1 9.5 5a7.5 7.5 0 1 0 9.5 9.5z", sun: "M12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5",
  thought: "M6 15.5A5 5 0 0 1 7 6a5.5 5.5 0 0 1 10.5 1.5A4.2 4.2 0 0 1 16.5 16H8zM6 19.5h.01M3.5 22h.01", close: "M6 6l12 12M18 6 6 18", theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
};

/** An icon with or in place of a word; fonts lack some characters. */
export function icon(name) {
  return svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}
