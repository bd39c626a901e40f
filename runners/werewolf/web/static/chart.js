// Sparklines, and charts with axes, intervals, a baseline and values on hover.

import { h, svg, tidy } from "./dom.js";
import { say } from "./words.js";

const path = (points) => points.map(([x, y], number) => `${number ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** points: [step, value, …] each; shares: between 0 and 1. */
export function spark(points, shares) {
  const values = points.map(([, value]) => value), low = shares ? 0 : Math.min(...values), high = shares ? 1 : Math.max(...values);
  const places = values.map((value, number) => [2 + (number / (values.length - 1)) * 156, 38 - ((value - low) / (high - low || 1)) * 34]);
  return svg("svg", { class: "spark", viewBox: "0 0 160 40", preserveAspectRatio: "xMinYMid", "aria-hidden": "true" }, svg("path", { class: "curve", d: path(places) }), svg("circle", { class: "dot", cx: places.at(-1)[0], cy: places.at(-1)[1], r: 3 }));
}

/** A value with its unit: "share" as per cent, "s" and others after the number. */
function valueText(value, unit = "") {
  if (unit === "share") return `${Number((value * 100).toPrecision(3))} %`;
  const short = Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : Number(value.toPrecision(3)).toString();
  return unit ? `${short} ${unit}` : short;
}

/** The ends of an interval, which a minus sign would run into. */
export const range = (low, high) => `${low}${String(low).startsWith("-") ? say(" 到 ", " to ") : "–"}${high}`;

/** values, low, high: step -> number. options: unit; line: {value, name} to compare with; large. */
export function chart(title, values, low, high, { unit = "", line = null, large = false } = {}) {
  const points = [...values].sort((a, b) => a[0] - b[0]), wide = large && innerWidth > 860, width = wide ? 560 : 320, height = wide ? 210 : 130, left = 58, bottom = 18, top = 10, right = 10;
  const all = [...points.map(([, value]) => value), ...(low?.values() ?? []), ...(high?.values() ?? []), ...(line ? [line.value] : [])];
  let min = unit === "share" ? 0 : Math.min(...all), max = unit === "share" ? 1 : Math.max(...all);
  if (min > 0 && min < max / 2) min = 0;
  if (min === max && min === 0) max = 1;
  if (min === max) { min -= Math.abs(min) * 0.1 + 0.1; max += Math.abs(max) * 0.1 + 0.1; }
  const first = points[0][0], last = points.at(-1)[0];
  const x = (step) => left + (last === first ? 0.5 : (step - first) / (last - first)) * (width - left - right), y = (value) => top + (1 - (value - min) / (max - min)) * (height - top - bottom);
  const banded = low && high ? points.map(([step]) => step).filter((step) => low.has(step) && high.has(step)) : [];
  const band = banded.length > 1 ? `${path(banded.map((step) => [x(step), y(high.get(step))]))}L${path([...banded].reverse().map((step) => [x(step), y(low.get(step))])).slice(1)}Z` : null;
  const bar = banded.length === 1 ? `M${x(first)} ${y(low.get(first))}V${y(high.get(first))}` : null;
  const told = ([step, value]) => `${valueText(value, unit)}${low?.has(step) && high?.has(step) ? ` (${range(...[low, high].map((end) => valueText(end.get(step), unit === "share" ? unit : "").replace(" %", "")))})` : ""}`;
  const latest = points.at(-1), now = h("b", {}, told(latest));
  const steps = svg("text", { y: height - 4, "text-anchor": "middle" }), needle = svg("path", { class: "needle", d: "" }), spot = svg("circle", { class: "dot spot", r: 0 });
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${tidy(title)}: ${points.length} ${say("个点，从", "points, from")} ${told(points[0])} ${say("到", "to")} ${told(latest)}`, onpointermove: point, onpointerdown: point, onpointerleave: leave },
    svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}`, fill: "none" }), min < 0 && max > 0 ? svg("path", { class: "axis zero", d: `M${left} ${y(0)}H${width - right}` }) : null,
    [max, min].map((end) => svg("text", { x: left - 5, y: y(end) + (end === max ? 6 : 0), "text-anchor": "end" }, valueText(end, unit === "share" ? unit : ""))), svg("text", { x: left, y: height - 4 }, String(first)), steps, last !== first ? svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, String(last)) : null,
    line ? [svg("path", { class: "goal", d: `M${left} ${y(line.value)}H${width - right}` }), svg("text", { class: "goal-name", x: width - right, y: y(line.value) + (y(line.value) < top + 12 ? 13 : -4), "text-anchor": "end" }, `${line.name} ${valueText(line.value, unit)}`)] : null,
    band ? svg("path", { class: "band", d: band }) : null, bar ? svg("path", { class: "bar", d: bar }) : null, svg("path", { class: "curve", d: path(points.map(([step, value]) => [x(step), y(value)])) }),
    points.length < 40 ? points.map(([step, value]) => svg("circle", { class: "dot", cx: x(step).toFixed(1), cy: y(value).toFixed(1), r: 2.6 })) : null, needle, spot);
  function point(event) {
    const box = drawing.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * width;
    const nearest = points.reduce((best, one) => (Math.abs(x(one[0]) - at) < Math.abs(x(best[0]) - at) ? one : best));
    now.textContent = told(nearest);
    steps.textContent = say(`第${nearest[0]}步`, `step ${nearest[0]}`);
    steps.setAttribute("x", Math.min(Math.max(x(nearest[0]), left + 50), width - right - 50));
    needle.setAttribute("d", `M${x(nearest[0])} ${top}V${height - bottom}`);
    for (const [name, value] of [["cx", x(nearest[0])], ["cy", y(nearest[1])], ["r", 4.5]]) spot.setAttribute(name, value);
  }
  function leave() {
    steps.textContent = say("步", "step");
    steps.setAttribute("x", (left + width - right) / 2);
    now.textContent = told(latest);
    needle.setAttribute("d", "");
    spot.setAttribute("r", 0);
  }
  leave();
  return h("figure", { class: `chart${large ? " large" : ""}` }, h("figcaption", {}, h("span", {}, tidy(title)), now), drawing);
}
