// The round table: seats, votes and actions as arrows, and the current event in the middle.

import { h, replace, svg, tidy } from "./dom.js";
import { isSpeech } from "./fold.js";
import { kindOfRole, lineOf, playerName, proposal, say, spoken, words } from "./words.js";

const CENTER = 500;

/** A board for a number of seats; `draw` shows a folded table on it. onSeat: called with a seat's number. */
export class Board {
  constructor(seats, onSeat = null) {
    this.seats = seats;
    this.radius = seats > 9 ? 398 : 392;
    this.size = seats > 9 ? 64 : seats > 6 ? 66 : 74;
    this.drawing = svg("svg", { viewBox: "24 24 952 952", role: onSeat ? "group" : "img", class: "table-drawing" });
    this.middle = h("div", { class: "middle" });
    this.element = h("div", { class: "board" }, this.drawing, this.middle);
    this.onSeat = onSeat;
    const marker = (id) => svg("marker", { id, viewBox: "0 0 10 10", refX: 7, refY: 5, markerWidth: 5.5, markerHeight: 5.5, orient: "auto-start-reverse" }, svg("path", { d: "M0 0 10 5 0 10 2.5 5z" }));
    this.drawing.append(
      svg("defs", {}, ["vote", "propose", "kill", "guard", "checkWolf", "checkGood", "save", "poison", "shot", "badge"].map((kind) => {
        const made = marker(`head-${kind}`);
        made.setAttribute("class", `arrow-${kind}`);
        return made;
      })),
      svg("radialGradient", { id: "glow", cx: "50%", cy: "42%", r: "62%" }, svg("stop", { offset: "0%", class: "glow-inner" }), svg("stop", { offset: "100%", class: "glow-outer" })),
      svg("circle", { class: "felt-edge", cx: CENTER, cy: CENTER, r: this.radius + 8 }),
      svg("circle", { class: "felt", cx: CENTER, cy: CENTER, r: this.radius - 4 }),
      svg("circle", { class: "felt-ring", cx: CENTER, cy: CENTER, r: this.radius - this.size - 34 }),
    );
    this.arrows = svg("g", { class: "arrows" });
    this.places = svg("g", { class: "places" });
    this.drawing.append(this.arrows, this.places);
  }

  at(seat, radius = this.radius) {
    const angle = ((seat - 0.5) / this.seats) * 2 * Math.PI - Math.PI / 2;
    return [CENTER + radius * Math.cos(angle), CENTER + radius * Math.sin(angle)];
  }

  draw(table, { asked = [], you = null, names = {} } = {}) {
    const text = words();
    this.element.dataset.time = table.night ? "night" : "day";
    const speaking = table.speaking?.seat ?? null;
    const focused = this.places.contains(document.activeElement) ? document.activeElement.dataset.seat : null;
    replace(this.places, Array.from({ length: this.seats }, (_, index) => this.place(index + 1, table, { asked, you, speaking, names })));
    if (focused) this.places.querySelector(`[data-seat="${focused}"]`)?.focus({ preventScroll: true });
    replace(this.arrows, table.arrows.map((arrow) => this.arrow(arrow)));
    const living = this.seats - table.deaths.size;
    this.drawing.setAttribute("aria-label", `${table.night ? text.night(table.day) : text.day(table.day)}, ${text.living} ${living}`);
    this.drawMiddle(table, asked);
  }

  drawMiddle(table, asked) {
    const text = words(), event = table.current;
    const head = h("div", { class: "when" }, h("span", { class: table.night ? "moon" : "sun", "aria-hidden": "true" }), table.night ? text.night(table.day) : text.day(table.day));
    if (!event) return replace(this.middle, head);
    if (isSpeech(event)) {
      const named = proposal(event);
      const long = (event.text ?? "").length > 110;
      return replace(this.middle, head, h("div", { class: `speech${long ? " long" : ""}` },
        h("div", { class: "who" }, h("b", {}, String(event.seat)), ` ${text.heads[event.kind]}${named ? ` · ${named}` : ""}`),
        h("blockquote", {}, spoken(event))));
    }
    const waiting = asked.length ? h("div", { class: "asking" }, `${text.waitingFor} ${asked.map((entry) => entry.seat).join(say("、", ", "))}`) : null;
    const outcome = table.result ? h("div", { class: `outcome ${table.result}` }, text.results[table.result] ?? "") : null;
    const line = outcome ? null : h("p", { class: `what ${event.secret ? "secret" : ""}`, dir: "auto" }, lineOf(event).slice(0, 300));
    replace(this.middle, head, outcome, line, waiting);
  }

  place(seat, table, { asked, you, speaking, names }) {
    const text = words(), [x, y] = this.at(seat), size = this.size;
    const role = table.roles.get(seat), kind = kindOfRole(role), death = table.deaths.get(seat);
    const up = say(0.8, 1.15); // English badges are wider, and stand above the number
    const isAsked = asked.find((entry) => entry.seat === seat);
    const classes = ["seat", `is-${kind}`, death ? "dead" : "", seat === speaking ? "speaking" : "", isAsked ? "asked" : "", seat === you ? "you" : "", table.tied.has(seat) ? "tied" : ""];
    const label = [
      `${seat}`, role ? text.roles[role] ?? "" : "", death ? text.deaths[death] : "",
      table.sheriff === seat ? text.sheriff : "", isAsked ? text.asked : "", names[seat] ? playerName(names[seat]) : "",
    ].filter(Boolean).join(", ");
    const group = svg("g", { class: classes.join(" "), transform: `translate(${x} ${y})` }, svg("title", {}, tidy(label)));
    if (this.onSeat) {
      group.dataset.seat = seat;
      group.setAttribute("tabindex", "0");
      group.setAttribute("role", "button");
      group.setAttribute("aria-label", tidy(label));
      group.addEventListener("click", () => this.onSeat(seat));
      group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); this.onSeat(seat); } });
    }
    group.append(svg("circle", { class: "halo", r: size + 12 }), this.shape(kind, size), svg("text", { class: "number", y: role ? -size * 0.14 : size * 0.2, "font-size": size * (role ? 0.62 : 0.78) }, String(seat)));
    if (role) group.append(svg("text", { class: "role", y: size * 0.5, "font-size": size * Math.min(say(0.46, 0.4), 2.85 / (text.roles[role] ?? "").length) }, text.roles[role] ?? ""));
    if (death) {
      group.append(svg("path", { class: "cross", d: `M${-size * 0.46} ${-size * (role ? 0.34 : 0.05)}H${size * 0.46}` })); // through the number alone
      group.append(this.badge(size * 0.74, -size * up, text.badges[death], "death-mark"));
    }
    if (table.sheriff === seat) group.append(this.badge(-size * 0.74, -size * up, text.badges.sheriff, "sheriff-mark"));
    else if (table.running.has(seat) && !death) group.append(this.badge(-size * 0.74, -size * up, text.badges.running, "running-mark"));
    const marks = table.marks.get(seat) ?? [];
    marks.slice(0, 3).forEach((mark, number) => group.append(this.badge(size * 0.9 - number * say(46, 92), size * 1.08, text.marks[mark], `mark-${mark}`)));
    if (table.counts.has(seat)) group.append(this.badge(size * 0.86, size * 0.9, table.counts.get(seat), "count-mark"));
    if (table.arrows.some((arrow) => arrow.from === seat && arrow.kind === "abstain")) group.append(this.badge(0, size * 1.02, text.badges.abstain, "abstain-mark"));
    if (isAsked) group.append(svg("text", { class: "dots", y: seat === you ? size + 34 : -size - 10, "font-size": 44 }, "…"));
    if (seat === you) group.append(this.badge(table.sheriff === seat ? size * 0.55 : death ? -size * 0.45 : 0, -size * 1.12, say("你", "you"), "you-mark"));
    return group;
  }

  // By shape as well as by colour: wolves pointed, 神职 six-sided, villagers and unknown round.
  shape(kind, size) {
    if (kind === "wolf") {
      const points = [[-0.98, -1.12], [-0.42, -0.86], [0.42, -0.86], [0.98, -1.12], [1.02, 0.1], [0.66, 0.78], [0, 1.06], [-0.66, 0.78], [-1.02, 0.1]];
      return svg("polygon", { class: "body", points: points.map(([x, y]) => `${x * size},${y * size}`).join(" ") });
    }
    if (kind === "god") {
      const points = Array.from({ length: 6 }, (_, i) => [Math.cos((i * Math.PI) / 3), Math.sin((i * Math.PI) / 3)]);
      return svg("polygon", { class: "body", points: points.map(([x, y]) => `${x * size * 1.1},${y * size * 1.1}`).join(" ") });
    }
    return svg("circle", { class: "body", r: size });
  }

  badge(x, y, word, name) {
    const half = Math.max(22, 9 + [...String(word)].reduce((sum, sign) => sum + (sign > "\u2e7f" ? 14 : 7), 0));
    return svg("g", { class: `mark ${name}`, transform: `translate(${x} ${y})` },
      svg("rect", { x: -half, y: -22, width: 2 * half, height: 44, rx: 22 }), svg("text", { y: 10 }, String(word)));
  }

  arrow({ from, to, kind }) {
    if (to === null) return null;
    const reach = this.radius - this.size - 16;
    if (from === to) {
      const [x, y] = this.at(from, reach);
      return svg("circle", { class: `arrow arrow-${kind} self`, cx: x, cy: y, r: 16 });
    }
    const [x1, y1] = this.at(from, reach), [x2, y2] = this.at(to, reach - 6);
    const pull = 0.36, cx = CENTER + ((x1 + x2) / 2 - CENTER) * pull, cy = CENTER + ((y1 + y2) / 2 - CENTER) * pull;
    const path = `M${x1.toFixed(1)} ${y1.toFixed(1)}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
    const word = words().arrows[kind];
    const drawn = svg("path", { class: `arrow arrow-${kind}`, d: path, "marker-end": `url(#head-${kind})` });
    if (!word) return drawn;
    return svg("g", {}, drawn, svg("text", { class: `arrow-word arrow-${kind}`, x: (x1 * 0.62 + x2 * 0.18 + cx * 0.2).toFixed(1), y: (y1 * 0.62 + y2 * 0.18 + cy * 0.2).toFixed(1) }, word));
  }
}

