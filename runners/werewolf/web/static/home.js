// The first page: games of a hub as they are played and all that it holds, and games in files.

import { ask, h, replace, tidy } from "./dom.js";
import { say, words } from "./words.js";

const EVERY_SECONDS = 5;

export async function homePage(main, query) {
  const text = words(), config = await ask("/api/config");
  const sections = [];
  if (config.hub) sections.push(hubSection(query));
  const files = [...config.files, ...config.kept];
  const filesCard = files.length ? h("section", { class: "card" }, h("h2", {}, say("文件里的对局", "Games in files")), gameList(files)) : null;
  const runsCard = config.runs.length ? h("section", { class: "card" }, h("h2", {}, text.runs), h("ul", { class: "samples" }, config.runs.slice(0, 12).map((name) => h("li", {}, h("a", { href: `/run/${encodeURIComponent(name)}` }, tidy(name)))))) : null;
  const welcome = h("section", { class: "card" }, h("h2", {}, say("坐下来玩一局", "Take a seat")), h("p", { class: "faint" }, say("和规则玩家、模型或训练中的策略同桌；一个人或几个人，每人一个链接。", "With scripted players, models or the policy in training; alone or several of you, each with a link of your own.")), h("p", {}, h("a", { href: "/play" }, say("开一桌 →", "Open a table →"))));
  replace(main, sections, h("div", { class: "grid" }, filesCard, runsCard, welcome));
}

/** A link to two games side by side that shows once two are ticked, and a maker of boxes to tick. */
function comparing() {
  const chosen = [];
  const compare = h("a", { class: "tag compare", hidden: true }, words().compare);
  const box = (id, title) => h("input", { type: "checkbox", "aria-label": `${words().compare}: ${tidy(title)}`, onchange: (event) => {
    if (event.target.checked) chosen.push(id); else chosen.splice(chosen.indexOf(id), 1);
    compare.hidden = chosen.length !== 2;
    compare.href = `/compare?${new URLSearchParams({ a: chosen[0] ?? "", b: chosen[1] ?? "" })}`;
  } });
  return [compare, box];
}

export function gameList(games) {
  const [compare, box] = comparing();
  const list = h("ul", { class: "samples" }, games.map((game) => h("li", {},
    box(game.id, game.title),
    h("a", { href: `/game?${new URLSearchParams({ id: game.id })}`, dir: "auto" }, tidy(game.title)),
    game.group ? h("span", { class: "faint" }, tidy(game.group)) : null,
    game.players ? h("span", { class: "faint" }, `${say("狼", "wolf")} ${tidy(game.players.wolf)} · ${say("好人", "good")} ${tidy(game.players.good)}`) : null,
    game.result ? h("span", { class: `tag ${game.result}` }, words().sides[game.result]) : null)));
  return [h("p", { class: "faint" }, say("勾选两局可以并排比较", "Tick two to see them side by side"), " ", compare), list];
}

function hubSection(query) {
  const text = words(), rows = h("tbody"), playing = h("tbody"), count = h("span", { class: "faint" }), problem = h("p", { class: "notice", hidden: true });
  const filters = Object.fromEntries(["run", "step", "preset", "policy", "mode", "status", "result", "won", "leak", "unusable", "people"].map((name) => [name, query.get(name) ?? ""]));
  const [compare, box] = comparing();
  let next = null, shown = new Map(), busy = false;
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
    if (busy) return;
    busy = true;
    try {
      const page = await ask("/api/games", { ...filters, before });
      problem.hidden = true;
      if (before === null) shown = new Map();
      if (!shown.size) rows.replaceChildren();
      for (const row of page.rows) add(row);
      if (before === null || next === null || page.next === null || page.next < next) next = page.next;
      more.hidden = next === null;
      countShown();
      if (before === null) drawPlaying(page.playing);
      sayIfNone();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
    busy = false;
  }

  // Asked again and again: only what is newer than what is shown, and the rows that have changed.
  async function refresh() {
    if (document.hidden || busy) return;
    busy = true;
    try {
      const page = await ask("/api/games", filters);
      problem.hidden = true;
      drawPlaying(page.playing);
      if (!shown.size && page.rows.length) rows.replaceChildren();
      for (const row of [...page.rows].reverse()) {
        const old = shown.get(row.id);
        if (!old) { const made = draw(row, box); shown.set(row.id, made); rows.prepend(made); }
        else if (old.dataset.state !== stateOf(row)) { const made = draw(row, box); shown.set(row.id, made); old.replaceWith(made); }
      }
      countShown();
    } catch (error) { problem.textContent = error.message; problem.hidden = false; }
    busy = false;
  }

  // Those that were looked at: a hub also holds rollouts of other kinds and counts all of them together.
  function countShown() {
    const games = `${shown.size}${next === null ? "" : "+"}`;
    count.textContent = say(`${games} 局`, `${games} games`);
  }
  function sayIfNone() {
    if (!shown.size) rows.replaceChildren(h("tr", {}, h("td", { colspan: 9 }, next === null ? text.nothingYet : say("最新的这些局里没有符合条件的，可以再往前找", "None of the newest fits; look at earlier ones"))));
  }

  function drawPlaying(games) {
    replace(playing, games.map((row) => draw(row, box)));
    playing.closest("section").hidden = games.length === 0;
  }
  function add(row) { if (!shown.has(row.id)) { const made = draw(row, box); shown.set(row.id, made); rows.append(made); } }

  const columns = [say("对局", "game"), say("规则", "preset"), say("训练", "run"), say("版本", "version"), say("玩家", "players"), say("状态", "state"), say("天数", "days"), say("泄露", "leaks"), say("无效", "unusable")];
  const header = () => h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name))));
  const live = h("section", { class: "card", hidden: true }, h("h2", {}, say("正在进行", "Being played")), h("div", { class: "scroll" }, h("table", { class: "list" }, header(), playing)));
  const all = h("section", { class: "card" }, h("h2", {}, say("全部对局 ", "All games "), count, " ", compare),
    h("div", { class: "filters" }, input("run", say("训练", "run")), input("step", say("版本", "version"), { class: "short", inputmode: "numeric" }), select("preset", say("规则", "preset"), ["12p_sheriff", "9p", "7p", "5p_tiny"].map((name) => [name, name])), input("policy", say("玩家", "player")),
      select("result", say("结果", "result"), [["wolf", text.sides.wolf], ["good", text.sides.good], ["draw", text.sides.draw]]), select("won", say("赢的身份", "role that won"), ["wolf", "wolf_king", "villager", "seer", "witch", "hunter", "guard"].map((role) => [role, text.roles[role]])), select("status", say("状态", "state"), ["queuing", "running", "succeeded", "failed", "cancelled"].map((name) => [name, stateWord(name)])), select("mode", say("用途", "mode"), [["train", say("训练", "training")], ["val", say("评估", "evaluation")]]),
      filterBox("leak", say("有泄露", "leaks")), filterBox("unusable", say("有无效回答", "unusable replies")), filterBox("people", say("有真人", "with people"))),
    problem, h("div", { class: "scroll" }, h("table", { class: "list games" }, header(), rows)), more);
  load(null);
  setInterval(refresh, EVERY_SECONDS * 1000);
  return [live, all];
}

const stateOf = (row) => JSON.stringify([row.status, row.result]);
const stateWord = (status) => ({ queuing: say("排队", "queued"), requeuing: say("重排", "requeued"), preparing: say("进行中", "playing"), running: say("进行中", "playing"), succeeded: say("结束", "finished"), failed: say("失败", "failed"), cancelled: say("取消", "cancelled") })[status] ?? status;

function draw(row, box) {
  const address = `/game?${new URLSearchParams({ id: row.id })}`;
  const state = row.result ? h("span", { class: `tag ${row.result}` }, words().sides[row.result]) : h("span", { class: `tag ${row.status === "preparing" ? "running" : row.status}` }, stateWord(row.status));
  const made = h("tr", { class: "open", onclick: (event) => { if (!event.target.closest("a, input")) location.href = address; } },
    h("td", { class: "name" }, box(row.id, row.game), " ", h("a", { href: address, dir: "auto" }, tidy(row.game))), h("td", {}, row.preset), h("td", { class: "name" }, row.run ? h("a", { href: `/run/${encodeURIComponent(row.run.replace(/-[0-9a-f]{8}$/, ""))}` }, tidy(row.run)) : "–"), h("td", {}, row.version ?? "–"), h("td", {}, tidy(row.players.join(", "))), h("td", {}, state),
    h("td", {}, row.days ?? "–"), h("td", {}, row.leaks === undefined ? "–" : row.leaks ? `⚠ ${row.leaks}` : "0"), h("td", {}, row.unusable === undefined ? "–" : row.unusable ? `⚠ ${row.unusable}` : "0"));
  made.dataset.state = stateOf(row);
  return made;
}
