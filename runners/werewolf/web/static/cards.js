// Cards of games and runs, for the home page and run pages.

import { spark } from "./chart.js";
import { h, tidy } from "./dom.js";
import { boardName, playerName, presetParts, runName, say, stateWord, stepName, withoutHash, words } from "./words.js";

const gameAddress = (id) => `/game?${new URLSearchParams({ id })}`;

/** "12 players, day 3, wolves won": what a game is called. */
function gameTitle(game) {
  const result = game.result ? { wolf: say("狼人胜", "wolves won"), good: say("好人胜", "good side won"), draw: say("平局", "a draw") }[game.result] : game.status && game.status !== "succeeded" ? stateWord(game.status) : null;
  const title = [game.preset ? presetParts(game.preset)[0] + say("局", "") : null, game.days ? say(`第${game.days}天`, `day ${game.days}`) : null, result].filter(Boolean).join(say(" · ", ", "));
  return title || tidy(game.file ?? say("一局", "a game"));
}

function whoPlays({ players = {} }) {
  const name = (side) => (players[side] ?? []).map(playerName).join(" + "), wolf = name("wolf"), good = name("good");
  if (!wolf && !good) return (players.unknown ?? []).map(playerName).join(say("、", ", "));
  if (wolf === good) return say(`${wolf}之间`, `${wolf} among themselves`);
  return say(`狼人是${wolf}，好人是${good}`, `${wolf} as wolves against ${good}`);
}

function whence(game) {
  const run = game.id.startsWith("run:") ? game.id.slice(4).split("/")[0] : withoutHash(game.run ?? "");
  const at = game.step !== undefined && game.step !== null ? say(`第${game.step}步`, `step ${game.step}`) : game.evaluation ? stepName(game.evaluation) : game.version ? say(`第${game.version}版`, `version ${game.version}`) : null;
  const purpose = game.evaluation || game.mode === "val" ? say("评估", "evaluation") : null;
  const when = game.when && (game.id.startsWith("table:") || game.file) ? new Date(game.when * 1000).toLocaleString(say("zh-CN", "en-GB"), { dateStyle: "short", timeStyle: "short" }) : null;
  return [run ? runName(run) : null, purpose, at, game.id.startsWith("file:") ? tidy(game.file ?? "") : null, when].filter(Boolean).join(" · ");
}

/** One game; box: makes the box that chooses it for a comparison. */
export function gameCard(game, box = null) {
  const title = gameTitle(game), flaws = [game.leaks ? say(`泄露 ${game.leaks}`, `leaks ${game.leaks}`) : null, game.unusable ? say(`无效回复 ${game.unusable}`, `invalid replies ${game.unusable}`) : null].filter(Boolean);
  return h("li", { class: `game-card ${game.result ?? game.status ?? ""}` },
    h("a", { href: gameAddress(game.id) }, h("b", {}, title), h("span", {}, boardName(game.preset)), h("span", { class: "who-plays" }, whoPlays(game)), h("span", { class: "faint" }, whence(game)), flaws.length ? h("span", { class: "warn" }, `⚠ ${flaws.join(" · ")}`) : null),
    box?.(game.id, title));
}

/** A link to two games side by side that shows once two are ticked, and a maker of boxes to tick. */
export function comparing() {
  const chosen = new Map(); // id -> its newest box
  const compare = h("a", { class: "tag compare", hidden: true }, words().compare);
  const box = (id, title) => {
    const made = h("input", { type: "checkbox", title: words().compare, "aria-label": `${words().compare}: ${title}`, checked: chosen.has(id), onchange: () => {
      if (made.checked) chosen.set(id, made); else chosen.delete(id);
      for (const [other, shown] of chosen) if (!shown.isConnected) chosen.delete(other); // a filter may have removed it
      const [a = "", b = ""] = chosen.keys();
      compare.hidden = chosen.size !== 2;
      compare.href = `/compare?${new URLSearchParams({ a, b })}`;
    } });
    if (chosen.has(id)) chosen.set(id, made);
    return made;
  };
  return [compare, box];
}

export function gameCards(games, most = 8) {
  const [compare, box] = comparing(), list = h("ul", { class: "cards games" }, games.slice(0, most).map((game) => gameCard(game, box)));
  const more = h("button", { type: "button", class: "more", hidden: games.length <= most, onclick: () => { list.append(...games.slice(most).map((game) => gameCard(game, box))); more.hidden = true; } }, say(`全部 ${games.length} 局`, `All ${games.length} games`));
  return [h("p", { class: "faint" }, say("勾选两局可以并排比较", "Select two to compare them side by side"), " ", compare), list, more];
}

const HEADLINES = {
  "evaluation/win_rate": (against) => (against ? [`对${against}的胜率`, `games won against ${against}`] : ["全部对局的胜率", "games won"]), "evaluation/reward": () => ["评估的平均奖励", "mean reward in evaluations"],
  "imitation/held_out_loss": () => ["模仿：留出数据的损失", "imitation: held-out loss"], "imitation/loss": () => ["模仿：损失", "imitation: loss"], "reward/good": () => ["训练中好人的平均奖励", "mean reward of the good side in training"],
};

/** A run in one sentence, its headline with the interval, and how it came there. */
function runCard(run) {
  const against = run.against.map(playerName).join(say("和", " and ")), curve = run.curve.filter(([, value]) => Number.isFinite(value));
  const known = curve.length ? HEADLINES[run.metric]?.(against) : null, [, value, low, high] = curve.at(-1) ?? [], shares = run.metric === "evaluation/win_rate";
  const number = (x, unit = "") => (shares ? `${Math.round(x * 100)}${unit}` : Number(x.toPrecision(3)).toString());
  const first = curve.length > 1 ? say(`，开始时 ${number(curve[0][1], " %")}`, `, at first ${number(curve[0][1], " %")}`) : "";
  return h("li", { class: "run-card" }, h("a", { href: `/run/${encodeURIComponent(run.name)}` },
    h("b", { dir: "auto" }, runName(run.name)),
    known ? h("span", { class: "headline" }, h("strong", {}, number(value, " %")), low !== null && low !== undefined ? h("small", {}, ` (${number(low)}–${number(high)})`) : null) : null,
    h("span", {}, known ? say(...known) + first : say("还没有数字", "no metrics yet")),
    run.steps ? h("span", { class: "faint" }, say(`${run.steps} 步`, `${run.steps} ${run.steps === 1 ? "step" : "steps"}`)) : null,
    curve.length > 1 ? spark(curve, shares) : null));
}

export const runCards = (runs) => h("ul", { class: "cards runs" }, runs.map(runCard));
