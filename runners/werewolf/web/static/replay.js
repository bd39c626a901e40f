// One game: the table, speeches, and a scrubber over events. For replays, live games and comparisons.

import { Board } from "./board.js";
import { ask, copy, h, icon, listen, quoted, replace, tidy } from "./dom.js";
import { fold, isSpeech, parts } from "./fold.js";
import { openTokens } from "./tokens.js";
import { explain, isWolf, lineOf, playerName, presetName, proposal, replyError, runName, say, spoken, stateWord, stepName, withoutHash, words } from "./words.js";

const ABOUT = { run: ["运行", "run"], version: ["策略版本", "version"], step: ["步", "step"], game: ["编号", "id"], mode: ["用途", "mode"], status: ["状态", "state"], group: ["同一副牌的组", "group of its deal"], evaluation: ["评估", "evaluation"], seed: ["种子", "seed"] };
const MODES = { train: ["训练", "training"], val: ["评估", "evaluation"] };
const SPEEDS = [0.5, 1, 2, 4, 8];

/** options: id, view, at (null: the end of a live game, else the beginning), thoughts, small, onMove(replay). */
export class Replay {
  constructor(options) {
    this.options = options;
    this.view = options.view ?? "god";
    this.thoughts = options.thoughts ?? true;
    this.speed = 1;
    this.timer = this.again = null; // again: of the home page, which repeats its game
    this.game = null;
    this.element = h("section", { class: `replay${options.small ? " small" : ""}` }, h("p", { class: "loading" }, words().loading));
  }

  async load(at = this.options.at) {
    const keep = this.game ? this.publicPlace() : null;
    this.game = await (this.options.source ? this.options.source(this.view) : ask("/api/game", { id: this.options.id, view: this.view }));
    this.stopListening?.();
    this.view = this.game.view;
    this.following = this.game.live && (at === null || at === undefined) && keep === null;
    const last = this.game.events.length - 1;
    this.at = keep !== null ? this.placeOf(keep) : Math.min(Math.max(at ?? (this.game.live ? last : Math.min(this.opening(), last)), 0), last);
    this.build();
    this.show();
    if (this.game.live) this.listen();
  }

  opening() {
    const first = this.game.events.findIndex((event) => event.kind === "night_falls");
    return Math.max(first, 0);
  }

  // The same moment in another view: the same number of public events.
  publicPlace() { return this.game.events.slice(0, this.at + 1).filter((event) => !event.secret).length; }
  placeOf(count) {
    let seen = 0;
    for (let index = 0; index < this.game.events.length; index++) if (!this.game.events[index].secret && ++seen === count) return index;
    return Math.max(this.game.events.length - 1, 0);
  }

  listen() {
    clearTimeout(this.retry);
    this.stopListening?.();
    const address = () => `/api/game/live?${new URLSearchParams({ id: this.options.id, view: this.view, from: this.game.events.length, turns: this.game.turns.length, attempt: this.game.attempt })}`;
    this.stopListening = listen(address, (news) => {
      if (news.first !== this.game.events.length || news.firstTurn !== this.game.turns.length) return void this.reload(); // a new attempt
      if (!news.live) { // its transcript has the whole game
        this.stopListening();
        this.following = this.at >= this.game.events.length - 1;
        this.reload().catch(() => { this.retry = setTimeout(() => this.listen(), 1500); });
        return;
      }
      this.game.events.push(...news.events);
      this.game.turns.push(...news.turns);
      Object.assign(this.game, { attempt: news.attempt, asked: news.asked, live: news.live, result: news.result, notice: news.notice });
      if (this.following) this.at = this.game.events.length - 1;
      const atEnd = this.grow();
      this.show(atEnd && this.following);
    }, (state) => {
      this.away = state === "away";
      this.fill();
      if (this.away) this.explainAway();
    });
  }

  // An event source does not show the status of an answer; after these it will never be another.
  async explainAway() {
    const problem = await ask("/api/game", { id: this.options.id, view: this.view }).then(() => null, (error) => error);
    if (![400, 401, 403, 404].includes(problem?.status)) return;
    this.stopListening();
    replace(this.notice, explain(problem));
    this.notice.hidden = false;
  }

  async reload() {
    const end = this.following;
    await this.load(this.at);
    if (end) this.go(this.game.events.length - 1);
  }


  // --- parts of the page ---------------------------------------------------------------------------------------------

  get views() { return ["god", "public", ...Array.from({ length: this.game.seats }, (_, index) => String(index + 1))]; }

  build() {
    const text = words(), game = this.game, small = this.options.small;
    if (!this.board || this.board.seats !== game.seats) this.board = new Board(game.seats, (seat) => this.look(String(seat)));
    const heading = h("div", { class: "heading" },
      h("h1", {}, game.live ? h("span", { class: "live" }, text.live) : null, presetName(game.preset)),
      h("span", { class: "subtitle", dir: "auto" }, this.options.lobby ? null : whoPlayed(game)),
      game.result ? h("span", { class: `result ${game.result}` }, text.results[game.result]) : null);
    this.notice = h("p", { class: "notice" });
    this.viewPicker = h("select", { "aria-label": text.view, class: "view-picker", disabled: game.onlyView !== null, onchange: (event) => this.look(event.target.value) },
      this.views.map((view) => h("option", { value: view, selected: view === this.view }, view === "god" ? text.god : view === "public" ? text.public : text.seatView(view))));
    this.thoughtsBox = h("label", { class: "check" }, h("input", { type: "checkbox", checked: this.thoughts, onchange: (event) => this.think(event.target.checked) }), text.thoughts);
    const bar = this.buildBar();
    this.log = this.buildLog();
    const side = h("aside", { class: "side" }, h("div", { class: "tools" }, this.viewPicker, this.thoughtsBox), this.log, small ? null : this.about());
    this.fill();
    replace(this.element, heading, this.notice, bar, h("div", { class: "stage" }, this.board.element, side));  // the keys come first for those who tab
  }

  fill() {
    const notice = this.away && this.game.live ? words().connectionLost : words().notices[this.game.notice];
    this.notice.hidden = !notice;
    this.notice.textContent = notice ?? "";
    this.thoughtsBox.hidden = !this.game.turns.length;
  }

  think(shown) {
    this.thoughts = this.thoughtsBox.firstElementChild.checked = shown;
    this.log.replaceWith(this.log = this.buildLog());
    this.show();
  }

  // New events of a live game: what a person has opened, focused or scrolled to stays as it is.
  // Returns whether the last entry was in view.
  grow() {
    const { log, strip } = this, top = log.scrollTop, controls = () => [...this.log.querySelectorAll("a, button, summary, [tabindex]")];
    const last = log.lastElementChild, focused = controls().indexOf(document.activeElement);
    const atEnd = !last || last.offsetTop - log.offsetTop < top + log.clientHeight; // an entry may be longer than the box
    this.fill();
    this.range.max = String(Math.max(this.game.events.length - 1, 0));
    strip.replaceWith(this.strip = this.buildStrip());
    log.replaceWith(this.log = this.buildLog());
    this.log.scrollTop = top;
    if (focused >= 0) controls()[focused]?.focus({ preventScroll: true });
    return atEnd;
  }

  buildBar() {
    const text = words(), last = Math.max(this.game.events.length - 1, 0);
    const button = (symbol, label, action, extra = {}) => h("button", { type: "button", class: "key", title: label, "aria-label": label, onclick: action, ...extra }, symbol);
    this.playButton = button(icon(this.timer ? "pause" : "play"), this.timer ? text.pause : text.start, () => this.toggle(), { class: "key main" });
    this.range = h("input", { type: "range", class: "scrubber", min: 0, max: last, value: this.at, "aria-label": say("进度", "progress"), oninput: (event) => this.go(Number(event.target.value)) });
    this.place = h("output", { class: "place" });
    this.strip = this.buildStrip();
    this.speedPicker = h("select", { "aria-label": text.speed, class: "speed", onchange: (event) => this.setSpeed(Number(event.target.value)) }, SPEEDS.map((speed) => h("option", { value: speed, selected: speed === this.speed }, `${speed}×`)));
    const link = button(icon("link"), text.copyLink, async () => {
      if (!await copy(this.link())) return prompt(text.copyLink, this.link());
      announce(text.copied);
      link.classList.add("done");
      setTimeout(() => link.classList.remove("done"), 1200);
    });
    return h("div", { class: "bar", role: "group", "aria-label": say("播放", "playback") },
      h("div", { class: "keys" }, button(icon("first"), text.first, () => this.go(0)), button(icon("back"), text.back, () => this.go(this.at - 1)), this.playButton, button(icon("next"), text.next, () => this.go(this.at + 1)), button(icon("last"), text.last, () => this.go(this.game.events.length - 1))),
      h("div", { class: "track" }, this.strip, this.range), this.place, this.speedPicker, this.options.small || this.options.source ? null : link);
  }

  buildStrip() {
    return h("div", { class: "strip", "aria-hidden": "true" }, parts(this.game.events).map((part) => {
      const stretch = h("button", { type: "button", tabindex: "-1", class: part.night ? "night" : "day", onclick: () => this.go(part.start) }, icon(part.night ? "moon" : "sun"), h("span", { class: "day-number" }, String(part.day)));
      stretch.style.setProperty("flex-grow", String(part.end - part.start + 1));
      return stretch;
    }));
  }

  buildLog() {
    const text = words(), list = h("ol", { class: "log" }), byEvent = new Map();
    for (const turn of this.game.turns) byEvent.set(turn.event, [...(byEvent.get(turn.event) ?? []), turn]);
    this.entries = [];
    this.game.events.forEach((event, index) => {
      const turns = byEvent.get(index) ?? [];
      if (event.kind === "role_dealt" && this.view === "god" && !turns.length) { this.entries.push(null); return; }
      if ((event.kind === "vote" || event.kind === "sheriff_vote") && !turns.length) {
        const before = this.game.events[index - 1]?.kind === event.kind ? this.entries.at(-1) : null;
        const ballot = before?.classList.contains("ballot") ? before : h("li", { class: `entry ballot ${event.kind}` }, h("span", { class: "head" }, event.kind === "vote" ? text.decisions.exile_vote : text.decisions.sheriff_vote));
        const chip = h("button", { type: "button", class: "vote-chip", tabindex: "-1", onclick: () => this.go(index) }, h("b", {}, String(event.seat)), event.target ? ` → ${event.target}` : ` ${text.abstain}`);
        ballot.append(chip);
        (ballot.chips ??= []).push([index, chip]);
        if (!before?.classList.contains("ballot")) list.append(ballot);
        this.entries.push(ballot);
        return;
      }
      const entry = h("li", { class: `entry kind-${event.kind} ${event.secret ? "secret" : ""}` });
      const jump = { role: "button", tabindex: "-1", onclick: () => this.go(index), onkeydown: (key) => { if (key.key === "Enter") this.go(index); } };
      if (event.kind === "night_falls" || event.kind === "day_breaks") {
        entry.classList.add("divider");
        entry.append(h("div", { ...jump, class: "line" }, event.kind === "night_falls" ? text.night(event.day) : text.day(event.day)));
      } else if (isSpeech(event)) {
        const named = proposal(event);
        entry.append(h("div", { ...jump, class: "line" }, h("span", { class: `who ${this.sideOf(event.seat)}` }, String(event.seat)), h("span", { class: "head" }, text.heads[event.kind], named ? ` · ${named}` : ""), h("p", {}, spoken(event))));
      } else entry.append(h("div", { ...jump, class: "line", dir: "auto" }, lineOf(event).slice(0, 400)));
      if (event.secret && event.audience && this.view === "god" && !isSpeech(event)) entry.querySelector(".line").append(h("span", { class: "audience", title: text.secretTo(event.audience.join(say("、", ", "))) }, icon("lock"), event.audience.join(" ")));
      if (this.thoughts || turns.some((turn) => turn.error)) for (const turn of turns) entry.append(this.turnRow(turn));
      this.entries.push(entry);
      list.append(entry);
    });
    return list;
  }

  sideOf(seat) {
    const role = this.game.roles[seat];
    return isWolf(role) ? "wolf" : role ? "good" : "";
  }

  turnRow(turn) {
    const text = words();
    const tokens = turn.tokens && this.game.id && !this.options.source ? h("button", { type: "button", class: "chip", onclick: () => openTokens(this.game, turn) }, `${text.tokens} ${turn.tokens[1]}`) : this.view === "god" && turn.policy === "policy" && this.game.id.startsWith("run:") ? h("span", { class: "faint" }, text.noTokens) : null;
    return h("div", { class: `turn${turn.error ? " bad" : ""}` },
      turn.thought && this.thoughts ? h("p", { class: "thought" }, h("span", { class: "seat-name" }, `${turn.seat} `), icon("thought"), quoted(turn.thought, text)) : null,
      turn.error ? h("p", { class: "error" }, `⚠ ${turn.seat} ${text.unusable}${say("：", ": ")}${replyError(turn.error)}`, turn.reply ? h("q", {}, quoted(turn.reply, text)) : null) : null,
      h("span", { class: "facts" },
        h("span", { class: "faint" }, `${turn.seat} ${text.decisions[turn.decision] ?? turn.decision}`),
        turn.policy_version !== undefined && turn.policy === "policy" ? h("span", { class: "faint" }, this.game.about?.evaluation ? stepName(this.game.about.evaluation) : text.version(turn.policy_version)) : turn.policy ? h("span", { class: "faint" }, playerName(turn.policy)) : null,
        turn.is_reask ? h("span", { class: "faint" }, text.reask) : null,
        turn.facts?.identity_leak ? h("span", { class: "warn" }, say("⚠ 泄露身份", "⚠ leak")) : null,
        turn.worth ? h("span", { class: "faint", title: text.worth(turn.worth.games) }, `${turn.worth.before.toFixed(2)} → ${turn.worth.after.toFixed(2)}`) : null,
        turn.logprob !== undefined ? h("span", { class: "faint" }, `⌀ ${turn.logprob.toFixed(2)}`) : null, tokens));
  }

  about() {
    const text = words(), { players = {}, about = {}, seed } = this.game;
    const seats = Object.entries(players);
    if (!seats.length && !Object.keys(about).length) return null;
    const known = Object.entries(about).filter(([, value]) => ["string", "number"].includes(typeof value) && value !== "");
    const rewards = about.rewards ?? about.outcomes ?? {};
    return h("details", { class: "about" }, h("summary", {}, text.about),
      h("dl", {}, Object.entries({ ...Object.fromEntries(known), seed: seed ?? "" }).map(([name, value]) => (value === "" ? null : [h("dt", {}, say(...(ABOUT[name] ?? [name, name]))), h("dd", { dir: "auto" }, name === "status" ? stateWord(value) : name === "mode" && Object.hasOwn(MODES, value) ? say(...MODES[value]) : tidy(value))]))),
      seats.length ? h("table", {}, h("tr", {}, h("th", {}, say("座位", "seat")), h("th", {}, say("玩家", "player")), h("th", {}, text.rewards)),
        seats.map(([seat, name]) => h("tr", {}, h("td", {}, seat), h("td", { dir: "auto" }, playerName(name)), h("td", {}, rewards[seat] === undefined ? "–" : Number(rewards[seat]).toFixed(2))))) : null);
  }

  // --- moving --------------------------------------------------------------------------------------------------------

  show(scrolls = true) {
    const events = this.game.events, table = fold(events, this.at, this.game.seats);
    for (const [seat, role] of Object.entries(this.game.roles)) if (!table.roles.has(Number(seat))) table.roles.set(Number(seat), role);
    const atEnd = this.at >= events.length - 1;
    const you = /^\d+$/.test(this.view) ? Number(this.view) : null;
    this.board.draw(table, { asked: atEnd && this.game.live ? this.game.asked : [], you, names: this.game.players ?? {} });
    this.range.value = String(this.at);
    this.range.setAttribute("aria-valuetext", events[this.at] ? lineOf(events[this.at]).slice(0, 200) : "");
    this.place.textContent = `${this.at + 1} / ${events.length}`;
    this.entries.forEach((entry, index) => {
      if (entry?.chips) {
        for (const [number, chip] of entry.chips) chip.classList.toggle("later", number > this.at);
        entry.classList.toggle("now", entry.chips.some(([number]) => number === this.at));
        entry.classList.toggle("later", entry.chips[0][0] > this.at);
        return;
      }
      entry?.classList.toggle("now", index === this.at);
      entry?.classList.toggle("later", index > this.at);
    });
    if (scrolls) this.scrollLog();
    this.options.onMove?.(this);
    document.body.dataset.time = table.night ? "night" : "day";
    if (events[this.at] && !this.options.lobby) announce(heard(events[this.at]));
  }

  scrollLog() {
    let index = this.at;
    while (index > 0 && !this.entries[index]) index--;
    const entry = this.entries[index];
    if (!entry) return;
    const box = this.log, top = entry.offsetTop - box.offsetTop, bottom = top + entry.offsetHeight;
    if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight * 0.4);
  }

  go(index) {
    const last = this.game.events.length - 1;
    this.at = Math.min(Math.max(index, 0), Math.max(last, 0));
    this.following = this.game.live && this.at === last;
    clearTimeout(this.again);
    if (this.at === last) this.pause();
    this.show();
  }

  toggle() { if (this.timer) this.pause(); else this.start(); }
  start() {
    if (this.at >= this.game.events.length - 1) this.at = -1;
    clearTimeout(this.timer);
    clearTimeout(this.again);
    const step = () => {
      this.go(this.at + 1);
      if (this.options.lobby && this.at === this.game.events.length - 1) this.again = setTimeout(() => this.start(), 9000);
      else if (this.at < this.game.events.length - 1 && this.timer) this.timer = setTimeout(step, this.pauseAfter(this.game.events[this.at]));
    };
    this.timer = setTimeout(step, 10);
    replace(this.playButton, icon("pause"));
    this.playButton.setAttribute("aria-label", words().pause);
  }
  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.playButton) { replace(this.playButton, icon("play")); this.playButton.setAttribute("aria-label", words().start); }
  }
  pauseAfter(event) {
    const length = isSpeech(event) ? 900 + Math.min((event.text ?? "").length, 160) * 55 : event.kind === "vote" || event.kind === "sheriff_vote" ? 380 : event.kind === "role_dealt" ? 60 : 1300;
    return length / this.speed;
  }
  setSpeed(speed) { this.speed = speed; this.speedPicker.value = String(speed); }

  async look(view) {
    if (this.game.onlyView !== null || view === this.view) return;
    const before = this.view, end = this.following, picking = document.activeElement === this.viewPicker;
    this.view = view;
    try {
      await this.load();
      if (end) this.go(this.game.events.length - 1);
      if (picking) this.viewPicker.focus();
    } catch (problem) {
      this.view = this.viewPicker.value = before;
      this.element.prepend(h("p", { class: "notice", role: "alert" }, explain(problem)));
    }
  }

  // moment: without it the link is to a game that goes on.
  link(moment = true) {
    const url = new URL("/game", location.href);
    url.search = new URLSearchParams({ id: this.options.id, view: this.view, ...(moment ? { at: String(this.at) } : {}) }).toString();
    return url.toString();
  }

  key(event) {
    if (!this.game || isForControl(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    const { views } = this, keys = {
      ArrowRight: () => this.go(this.at + 1), ArrowLeft: () => this.go(this.at - 1), Home: () => this.go(0), End: () => this.go(this.game.events.length - 1), " ": () => this.toggle(),
      v: () => this.look(views[(views.indexOf(this.view) + 1) % views.length]), t: () => this.think(!this.thoughts),
      "[": () => this.setSpeed(SPEEDS[Math.max(0, SPEEDS.indexOf(this.speed) - 1)]), "]": () => this.setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, SPEEDS.indexOf(this.speed) + 1)]),
    };
    const found = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (!found) return;
    event.preventDefault();
    found();
  }
}

// Whether the focused control takes the key: text fields and selects take every key, buttons and boxes Space and Enter, sliders none.
function isForControl(event) {
  const control = event.target.closest("input, textarea, select, button, summary, [role=button]");
  if (document.querySelector("dialog[open]")) return true;
  if (!control || control.matches("input[type=range]")) return false;
  return !control.matches("input[type=checkbox], button, summary, [role=button]") || event.key === " " || event.key === "Enter";
}

// Source and players of the game: names of runs and players, never an id.
function whoPlayed({ about = {}, players = {}, title = "", id = "" }) {
  const run = about.run ? runName(withoutHash(String(about.run))) : null;
  const step = about.evaluation ?? about.step;
  const names = [...new Set(Object.values(players))].map(playerName).join(say("、", ", "));
  return [run, step && stepName(step), names, id.startsWith("file:") ? tidy(title) : null].filter(Boolean).join(" · ");
}

/** An event as a screen reader hears it. */
export const heard = (event) => (isSpeech(event) ? `${event.seat} ${words().heads[event.kind]}: ${tidy(event.text ?? "")}` : lineOf(event)).slice(0, 220);
export function announce(text) { document.getElementById("live-region").textContent = text; }
