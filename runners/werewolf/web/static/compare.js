// Two games of one deal side by side, e.g. before and after training, synchronized by day.

import { h, replace } from "./dom.js";
import { Replay } from "./replay.js";
import { say } from "./words.js";

export async function comparePage(main, query) {
  let together = true, moving = false;
  const replays = ["a", "b"].map((name) => new Replay({ id: query.get(name) ?? "", view: query.get("view") ?? "god", at: null, small: true, onMove: (moved) => follow(moved) }));
  function follow(moved) {
    const other = replays[0] === moved ? replays[1] : replays[0];
    if (!together || moving || !other.game || !moved.game) return;
    moving = true;
    try { other.go(sameMoment(moved, other)); } finally { moving = false; }
  }
  const box = h("label", { class: "check" }, h("input", { type: "checkbox", checked: true, onchange: (event) => { together = event.target.checked; } }), say("一起走：同一天的同一阶段", "move together: the same part of the same day"));
  replace(main, h("section", { class: "card" }, h("h1", {}, say("并排比较", "Side by side")), box), h("div", { class: "pair" }, replays.map((replay) => replay.element)));
  document.addEventListener("keydown", (event) => (replays.find((one) => one.element.contains(event.target)) ?? replays[0]).key(event));
  moving = true;
  await Promise.all(replays.map((replay) => replay.load()));
  moving = false;
  const told = dealsOf(...replays.map((replay) => replay.game));
  if (told) main.firstElementChild.append(h("p", { class: "notice" }, told));
}

// Why the comparison may mislead; null for two games of one deal.
function dealsOf(first, second) {
  const unknown = first.seed == null || second.seed == null;
  if (first.preset !== second.preset || (!unknown && first.seed !== second.seed)) return say("这两局发的不是同一副牌", "These games have different deals");
  return unknown ? say("这个视角下看不出两局发的是不是同一副牌", "This view does not show whether the games have the same deal") : null;
}

// As far into the same night or day as the other is.
function sameMoment(from, to) {
  const at = from.game.events[from.at];
  const part = (replay) => {
    const events = replay.game.events, night = isNight(from.game.events, from.at);
    let start = -1, end = -1;
    events.forEach((event, index) => { if (event.day === at.day && isNight(events, index) === night) { if (start < 0) start = index; end = index; } });
    return [start, end];
  };
  const [start, end] = part(from), [first, last] = part(to);
  if (first < 0) return to.game.events.length - 1;
  return first + Math.round(((from.at - start) / Math.max(end - start, 1)) * (last - first));
}

function isNight(events, index) {
  for (let i = index; i >= 0; i--) if (events[i].kind === "day_breaks") return false; else if (events[i].kind === "night_falls") return true;
  return true;
}
