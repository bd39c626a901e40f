// The table's state after an event: a pure function of the viewer's events.

import { ROLES } from "./roles.js";

const SPEECHES = new Set(["wolf_says", "campaign_speech", "sheriff_pk_speech", "speech", "closing_speech", "pk_speech", "last_words"]);
const BALLOT_GOES_ON = new Set(["vote", "sheriff_vote", "vote_count", "vote_tied", "exiled", "revealed", "nobody_exiled", "sheriff_elected"]);

export const isSpeech = (event) => SPEECHES.has(event.kind);

const seatList = (event) => (event.data?.seats ?? "").split(",").filter(Boolean).map(Number);

/** events[0..at] folded into a table. */
export function fold(events, at, seats) {
  const table = {
    day: 1, night: true, deaths: new Map(), sheriff: null, roles: new Map(), arrows: [], counts: new Map(),
    speaking: null, running: new Set(), tied: new Set(), current: null, marks: new Map(), result: null,
  };
  let poisoned = new Set(), ballot = null;
  const mark = (seat, word) => table.marks.set(seat, [...(table.marks.get(seat) ?? []), word]);
  for (let index = 0; index <= at && index < events.length; index++) {
    const event = events[index], { kind, seat, target } = event;
    table.day = event.day;
    table.current = event;
    table.speaking = null;
    if (!BALLOT_GOES_ON.has(kind) || (ballot && (kind === "vote" || kind === "sheriff_vote") && ballot.closed)) {
      if (ballot) { table.arrows = []; table.counts = new Map(); }
      ballot = null;
    }
    if (SPEECHES.has(kind)) {
      table.speaking = event;
      if (target && kind === "wolf_says") table.arrows = [...table.arrows.filter((a) => a.from !== seat), { from: seat, to: target, kind: "propose" }];
      else if (target) table.arrows = [{ from: seat, to: target, kind: "propose" }];
      else if (kind !== "wolf_says") table.arrows = [];
    }
    if (event.data?.dead) {
      table.deaths.set(Number(event.data.dead), kind);
      table.arrows = [{ from: seat, to: target, kind: "propose" }];
    }
    if (event.data?.role) table.roles.set(seat ?? target, event.data.role);
    switch (kind) {
      case "wolf_team":
        for (const wolf of seatList(event)) if (!table.roles.has(wolf)) table.roles.set(wolf, "wolf");
        for (const [role, seats] of Object.entries(event.data ?? {})) if (ROLES[role]) for (const wolf of seats.split(",")) table.roles.set(Number(wolf), role);
        break;
      case "night_falls": table.night = true; table.arrows = []; table.marks = new Map(); poisoned = new Set(); table.tied = new Set(); break;
      case "day_breaks": table.night = false; table.arrows = []; table.marks = new Map(); break;
      case "wolf_vote": if (target) table.arrows.push({ from: seat, to: target, kind: "kill" }); break;
      case "wolf_target": if (target) { table.arrows = table.arrows.filter((a) => a.kind !== "propose"); mark(target, "kill"); } break;
      case "guarded": if (target) { table.arrows.push({ from: seat, to: target, kind: "guard" }); mark(target, "guard"); } break;
      case "seer_result": table.arrows.push({ from: seat, to: target, kind: event.data?.side === "wolf" ? "checkWolf" : "checkGood" }); break;
      case "antidote_used": table.arrows.push({ from: seat, to: target, kind: "save" }); mark(target, "save"); break;
      case "poison_used": poisoned.add(target); table.arrows.push({ from: seat, to: target, kind: "poison" }); mark(target, "poison"); break;
      case "signed_up": table.running = new Set(seatList(event)); break;
      case "withdrew": table.running.delete(seat); break;
      case "sheriff_elected": table.sheriff = target; table.running = new Set(); table.tied = new Set(); break;
      case "badge_lost": table.running = new Set(); table.tied = new Set(); break;
      case "badge_passed": table.sheriff = target; table.arrows = [{ from: seat, to: target, kind: "badge" }]; break;
      case "badge_torn": table.sheriff = null; break;
      case "deaths_announced":
        for (const dead of seatList(event)) table.deaths.set(dead, poisoned.has(dead) ? "poison" : "night");
        break;
      case "exiled": table.deaths.set(target, "exile"); break;
      case "exploded": table.deaths.set(seat, "explode"); table.arrows = []; table.tied = new Set(); break;
      case "shot": table.deaths.set(target, event.data?.exploded ? "taken" : "shot"); table.arrows = [{ from: seat, to: target, kind: "shot" }]; break;
      case "speaking_order": table.arrows = []; break;
      case "vote": case "sheriff_vote":
        if (!ballot) { ballot = { closed: false }; table.arrows = []; table.counts = new Map(); }
        table.arrows.push(target ? { from: seat, to: target, kind: "vote" } : { from: seat, to: null, kind: "abstain" });
        break;
      case "vote_count":
        if (ballot) ballot.closed = true;
        table.counts = new Map((event.data?.count ?? "").split(",").filter(Boolean).map((entry) => entry.split(":")).map(([name, votes]) => [Number(name), votes]));
        break;
      case "vote_tied": table.tied = new Set(seatList(event)); break;
      case "game_over": table.result = event.data?.result ?? null; table.arrows = []; table.tied = new Set(); break;
    }
  }
  table.arrows = table.arrows.filter((a) => a.from >= 1 && a.from <= seats && (a.to === null || (a.to >= 1 && a.to <= seats)));
  return table;
}

/** Stretches of nights and days: [{start, end, day, night}], for the scrubber. */
export function parts(events) {
  const found = [];
  events.forEach((event, index) => {
    const last = found.at(-1);
    if (!last || event.kind === "night_falls" || event.kind === "day_breaks") {
      if (last && last.start === index) { last.night = event.kind !== "day_breaks"; last.day = event.day; return; }
      if (last && event.kind === "night_falls" && found.length === 1 && !last.begun) { last.begun = true; last.day = event.day; return; }
      if (last) last.end = index - 1;
      found.push({ start: index, end: index, day: event.day, night: event.kind !== "day_breaks", begun: event.kind === "night_falls" });
    }
    found.at(-1).end = index;
  });
  return found;
}
