// The home page: a featured game, a quick start, runs and games, with running games of a hub.

import { comparing, gameCard, gameCards, runCards } from "./cards.js";
import { ask, h, replace, tidy } from "./dom.js";
import { playNow } from "./host.js";
import { Replay } from "./replay.js";
import { PRESETS, ROLES } from "./roles.js";
import { explain, presetName, runName, say, stateWord, words } from "./words.js";

const EVERY_SECONDS = 5;

export async function homePage(main, query) {
  const text = words(), config = await ask("/api/config"), stage = h("div", { class: "featured" }), more = h("a", {}, say("看这一局的全部发言 →", "All that was said in this game →"));
  const hub = config.hub ? hubSection(query, (games) => feature(games.find((game) => game.live) ?? games.find((game) => game.result))) : null;
  replace(main,
    h("div", { class: "lobby" }, stage, h("section", { class: "welcome" },
      h("h1", {}, say("语言模型学着玩狼人杀", "Language models learn to play Werewolf")),
      h("p", {}, say("看它们推理、说谎、投票；或者自己坐下，和它们玩一局。", "Watch them reason, lie and vote; or take a seat and play with them.")),
      playNowButton(), h("p", { class: "faint" }, say("几分钟一局，不用登录。", "A few minutes a game, no account.")),
      h("p", {}, h("a", { href: "/play" }, say("选规则和对手，或者几个人一起玩 →", "Choose rules and opponents, or play with friends →"))), h("p", {}, more))),
    config.runs.length ? h("section", { class: "card" }, h("h2", {}, text.runs), runCards(config.runs.slice(0, 6)), h("p", {}, h("a", { href: "/runs" }, say("全部运行 →", "All runs →")))) : null,
    config.games.length ? h("section", { class: "card" }, h("h2", {}, say("最近的对局", "Recent games")), gameCards(config.games)) : null,
    hub);
  if (!hub) await feature(null);

  // The hub's newest, else the server's choice.
  async function feature(game) {
    const id = game?.id ?? config.featured;
    const replay = new Replay({ id, view: "god", at: null, small: true, lobby: true, thoughts: false });
    more.href = `/game?${new URLSearchParams({ id })}`;
    replace(stage, replay.element);
    try {
      await replay.load();
      if (!replay.game.live && !matchMedia("(prefers-reduced-motion: reduce)").matches) replay.start();
    } catch (problem) { replace(stage, h("p", { class: "notice" }, explain(problem))); }
  }
}

function playNowButton() {
  const button = h("button", { type: "button", class: "primary large play-now", onclick: () => playNow(button) }, say("马上开局", "Play now"));
  return h("div", {}, button);
}

function hubSection(query, onFirst) {
  const text = words(), rows = h("ul", { class: "cards games" }), playing = h("ul", { class: "cards" }), count = h("span", { class: "faint" }), problem = h("p", { class: "notice", hidden: true }), none = h("p", { class: "faint", hidden: true });
  const filters = Object.fromEntries(["run", "step", "preset", "policy", "mode", "status", "result", "won", "leak", "unusable", "people"].map((name) => [name, query.get(name) ?? ""]));
  const [compare, box] = comparing();
  let next = null, wanted = null, paged = false, shown = new Map(), busy = false, changed = false, first = true, playingShown = "";
  const input = (name, label, extra = {}) => h("label", {}, label, h("input", { value: filters[name], ...extra, onchange: (event) => set(name, event.target.value.trim()) }));
  const select = (name, label, values) => h("label", {}, label, h("select", { onchange: (event) => set(name, event.target.value) }, h("option", { value: "" }, say("全部", "all")), values.map(([value, word]) => h("option", { value, selected: filters[name] === value }, word))));
  const filterBox = (name, label) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: filters[name] !== "", onchange: (event) => set(name, event.target.checked ? "1" : "") }), label);
  const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => load(next) }, say("更早的对局", "Earlier games"));

  function set(name, value) {
    filters[name] = value;
    const address = new URL(location.href);
    if (value) address.searchParams.set(name, value); else address.searchParams.delete(name);
    history.replaceState(null, "", address);
    load(null);
  }

  async function load(before) {
    if (busy) {
      if (before === null) changed = true; else wanted = before;
      return;
    }
    busy = true;
    let news = [];
    try {
      const page = await ask("/api/games", { ...filters, before });
      problem.hidden = true;
      if (before === null) { shown = new Map(); rows.replaceChildren(); }
      paged = before !== null;
      for (const row of page.rows) if (!shown.has(row.id)) show(row, (made) => rows.append(made));
      if (before === null || next === null || page.next === null || page.next < next) next = page.next;
      more.hidden = next === null;
      if (before === null) drawPlaying(page.playing);
      countShown();
      news = [...page.playing.map((row) => ({ ...row, live: true })), ...page.rows];
    } catch (error) { complain(error); }
    release();
    if (first) { first = false; onFirst(news); }
  }

  // Polled: newer cards, and those that have changed. Of the newest page alone, what is no longer on it goes; below
  // earlier pages a page without a shown card means that games between are missing.
  async function refresh() {
    if (document.hidden || busy) return;
    busy = true;
    try {
      const page = await ask("/api/games", filters);
      problem.hidden = true;
      drawPlaying(page.playing);
      const ids = new Set(page.rows.map((row) => row.id));
      if (paged) changed ||= ids.size > 0 && ![...ids].some((id) => shown.has(id));
      else {
        for (const [id, card] of shown) if (!ids.has(id) && !card.querySelector("input:checked")) { card.remove(); shown.delete(id); } // not what is to be compared
        next = page.next;
        more.hidden = next === null;
      }
      for (const row of [...page.rows].reverse()) {
        const old = shown.get(row.id);
        if (!old) show(row, (made) => rows.prepend(made));
        else if (old.dataset.state !== stateOf(row)) show(row, (made) => old.replaceWith(made));
      }
      countShown();
    } catch (error) { complain(error); }
    release();
  }

  // What was asked for during a request follows it: a filter, or earlier games.
  function release() {
    busy = false;
    const earlier = wanted;
    wanted = null;
    if (changed) {
      changed = false;
      load(null);
    } else if (earlier !== null) load(earlier);
  }

  function show(row, place) {
    const made = gameCard(row, box);
    made.dataset.state = stateOf(row);
    shown.set(row.id, made);
    place(made);
  }
  function complain(error) { replace(problem, explain(error)); problem.hidden = false; }

  // Only scanned rollouts count: the hub's own count includes those of other workloads.
  function countShown() {
    const games = `${shown.size}${next === null ? "" : "+"}`;
    count.textContent = say(`${games} 局`, `${games} games`);
    none.hidden = shown.size > 0;
    none.textContent = next === null ? text.nothingYet : say("最新的这些局里没有符合条件的，可以再往前找", "No recent game matches; search earlier ones");
  }

  function drawPlaying(games) {
    const listed = JSON.stringify(games);
    if (listed === playingShown) return; // a link that has the focus stays
    playingShown = listed;
    replace(playing, games.map((row) => gameCard(row)));
    playing.closest("section").hidden = games.length === 0;
  }

  const live = h("section", { class: "card playing", hidden: true }, h("h2", {}, h("span", { class: "live" }, text.live), say("正在进行", "Running")), playing);
  const anySet = Object.values(filters).some(Boolean);
  const all = h("section", { class: "card" }, h("h2", {}, say("中枢里的对局 ", "Games of the hub "), count, " ", compare),
    h("details", { class: "filter-box", open: anySet }, h("summary", {}, say("筛选", "Filter")), h("div", { class: "filters" }, input("run", say("运行", "run")), input("step", say("版本", "version"), { class: "short", inputmode: "numeric" }), select("preset", say("规则", "preset"), Object.keys(PRESETS).map((name) => [name, presetName(name)])), input("policy", say("玩家", "player")),
      select("result", say("结果", "result"), ["wolf", "good", "draw"].map((side) => [side, text.sides[side]])), select("won", say("赢的身份", "winning role"), Object.keys(ROLES).map((role) => [role, text.roles[role]])), select("status", say("状态", "state"), ["queuing", "running", "succeeded", "failed", "cancelled"].map((name) => [name, stateWord(name)])), select("mode", say("用途", "mode"), [["train", say("训练", "training")], ["val", say("评估", "evaluation")]]),
      filterBox("leak", say("有泄露", "leaks")), filterBox("unusable", say("有无效回复", "invalid replies")), filterBox("people", say("有真人", "with people")))),
    problem, rows, none, more);
  load(null);
  setInterval(refresh, EVERY_SECONDS * 1000);
  return [live, all];
}

const stateOf = (row) => JSON.stringify([row.status, row.result]);

export async function runsPage(main) {
  const { runs, more } = await ask("/api/config");
  replace(main, h("section", { class: "card" }, h("h1", {}, words().runs), runs.length ? runCards(runs) : h("p", { class: "faint" }, say("文件夹里还没有运行（--runs）；make demo 十分钟就能做出一个", "No runs in the folder (--runs) yet; make demo trains one in minutes")), more.length ? h("ul", { class: "samples" }, more.map((name) => h("li", {}, h("a", { href: `/run/${encodeURIComponent(name)}` }, runName(tidy(name)))))) : null));
}
