// Opening a table for people, and the host's page with links and public events.

import { Board } from "./board.js";
import { ask, copy, h, replace, send, tidy } from "./dom.js";
import { fold } from "./fold.js";
import { PRESETS } from "./roles.js";
import { PLAYERS, explain, playerName, policyName, presetName, say, words } from "./words.js";

const EVERY_SECONDS = 1.5;
const QUICK = Object.keys(PRESETS).reduce((best, name) => (PRESETS[name].seats < PRESETS[best].seats ? name : best));

const bestOthers = (tables) => (tables.others.includes("policy") ? "policy" : "scripted");

/** A game like those that the policy trained with, on the side that it did not train; without a policy the shortest. */
const bestTable = (tables) => {
  const { preset = QUICK, sides = [] } = tables.practice ?? {};
  return { preset, people: 1, side: sides.length === 1 ? (sides[0] === "wolf" ? "good" : "wolf") : "any", others: bestOthers(tables) };
};

/** A table of one's own, and to its seat; button: says meanwhile that it is being opened, or why it cannot be. */
export async function playNow(button, wanted = null) {
  const label = button.textContent;
  if (button.nextElementSibling?.matches(".notice")) button.nextElementSibling.remove();
  button.disabled = true;
  button.textContent = say("正在开桌…", "Opening a table…");
  try {
    wanted ??= bestTable(await ask("/api/tables"));
    location.href = (await send("/api/tables", wanted)).seats[0];
  } catch (problem) {
    button.after(h("p", { class: "notice", role: "alert" }, explain(problem)));
    button.disabled = false;
    button.textContent = label;
  }
}

export async function newTablePage(main) {
  const tables = await ask("/api/tables");
  const wanted = { ...bestTable(tables), record: "no" };
  const problem = h("p", { class: "notice", hidden: true, role: "alert" });
  const form = h("form", { class: "card form", onsubmit: open });
  async function open(event) {
    event.preventDefault();
    const seed = form.elements.seed.value.trim(), number = (name) => Number(form.elements[name].value);
    form.querySelector(".primary").disabled = true;
    try {
      const made = await send("/api/tables", { ...wanted, people: number("people"), clock: number("clock"), pace: number("pace"), seed: seed === "" ? null : Number(seed) });
      location.href = `/table/${made.table}`;
    } catch (error) {
      replace(problem, explain(error));
      problem.hidden = false;
      form.querySelector(".primary").disabled = false;
    }
  }
  const tabs = (name, label, options) => {
    const group = h("div", { class: "tabs", role: "group", "aria-label": label }, options.map(([value, word]) => h("button", { type: "button", "aria-pressed": String(wanted[name] === value), "data-value": value, onclick: (event) => {
      wanted[name] = value;
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
      limit();
    } }, word)));
    return h("fieldset", { "data-name": name }, h("legend", {}, label), group);
  };
  const field = (label, input, note = "") => h("label", { class: "field" }, h("span", {}, label), input, note ? h("small", { class: "faint" }, note) : null);
  const opponent = h("p", { class: "faint opponent", "aria-live": "polite" });
  const people = h("input", { name: "people", type: "number", min: 1, max: 12, value: 1 });
  function limit() {
    const { seats, wolves } = PRESETS[wanted.preset];
    opponent.textContent = Object.hasOwn(PLAYERS, wanted.others) ? say(...PLAYERS[wanted.others].slice(2)) : say("一个聊天模型。", "A chat model.");
    people.max = wanted.side === "any" ? seats : wanted.side === "wolf" ? wolves : seats - wolves;
    people.value = Math.min(Number(people.value), Number(people.max));
  }
  replace(form,
    h("h1", {}, say("开一桌", "Open a table")),
    tabs("preset", say("规则", "Rules"), Object.keys(PRESETS).sort((a, b) => PRESETS[a].seats - PRESETS[b].seats).map((name) => [name, presetName(name)])),
    tabs("others", say("其他座位", "The other seats"), tables.others.map((name) => [name, name === "policy" && tables.policy ? policyName(tables.policy) : playerName(name)])),
    opponent,
    h("div", { class: "grid" }, field(say("几个人", "How many people"), people, say("每个人得到自己的链接", "each gets a link")), field(say("每次回答的时限（秒，0 不限）", "Seconds for each answer (0: no limit)"), h("input", { name: "clock", type: "number", min: 0, max: 3600, value: 120 }), say("到时自动按默认行动", "then the default action is taken")), field(say("节奏（秒）", "Pace, seconds"), h("input", { name: "pace", type: "number", min: 0, max: 10, step: 0.5, value: 2 }), say("规则玩家想多久，入夜停多久", "delay of rule-based players, and of nightfall")), field(say("种子（可空）", "Seed (may be empty)"), h("input", { name: "seed", inputmode: "numeric", pattern: "[0-9]*" }))),
    tabs("side", say("人坐哪一边", "The people's side"), [["any", say("随机", "any")], ["good", words().sides.good], ["wolf", words().sides.wolf]]),
    tables.records.length > 1 ? tabs("record", say("结束后在中枢里记作", "Store in the hub as"), [["no", say("不记", "nothing")], ["evaluation", say("评估：人对策略", "evaluation: people against the policy")], ["demonstration", say("示范：供模仿", "demonstration, for imitation")]]) : null,
    problem, h("div", {}, h("button", { class: "primary", type: "submit" }, say("开桌", "Open the table"))));
  limit();
  replace(main, form);
}

export async function hostPage(main, table) {
  const text = words();
  let board = null, over = false, shown = 0;
  const links = h("ul", { class: "samples links" }), state = h("p", { class: "faint", role: "status" }), stage = h("div", {});
  replace(main, h("section", { class: "card" }, h("h1", {}, say("牌桌", "The table")), state, h("p", { class: "faint" }, say("把链接分给每个人：链接就是座位，谁打开谁就是那个人。所有人都打开后开局。", "Hand out the links: a link is a seat. The game begins once all are open.")), links), stage);
  let drawn = "";
  async function refresh() {
    const status = await ask(`/api/table/${table}`);
    const now = JSON.stringify([status.people, status.phase]);
    over = status.phase === "over" || status.phase === "failed";
    if (now !== drawn) {
      drawn = now;
      replace(links, status.people.map((person, number) => {
        const address = new URL(person.link, location.href).toString();
        return h("li", {}, h("b", {}, `${say("玩家", "Player")} ${number + 1}`), h("a", { class: "seat-link primary large", href: person.link, target: status.people.length > 1 ? "_blank" : null, rel: "noopener" }, say("坐下", "Sit down")), h("button", { type: "button", onclick: async (event) => { const button = event.currentTarget; button.textContent = await copy(address) ? say("已复制", "Copied") : address; } }, say("复制链接", "Copy link")), h("span", { class: "faint" }, person.joined ? say("✓ 已入座", "✓ joined") : say("… 等待中", "… not joined yet")));
      }));
      const phases = { waiting: say("等人入座", "waiting for people"), playing: say("进行中", "being played"), over: say("结束", "over"), failed: say("中断", "stopped") };
      replace(state, `${presetName(status.preset)} · ${phases[status.phase]}${status.problem ? `: ${tidy(status.problem)}` : ""} `, status.replay ? h("a", { href: `/game?${new URLSearchParams({ id: status.replay })}` }, say("看完整回放 →", "See the whole game →")) : null, over ? [" ", h("a", { href: "/play" }, say("再开一桌 →", "Open another table →"))] : null);
    }
    if (status.game.events.length && !board) { board = new Board(status.game.seats); replace(stage, board.element); }
    if (status.game.events.length > shown) { // drawing again would restart the arrows and scroll a speech to its top
      shown = status.game.events.length;
      board.draw(fold(status.game.events, shown - 1, status.game.seats));
    }
  }
  async function follow() {
    while (!over) {
      await new Promise((resolve) => setTimeout(resolve, EVERY_SECONDS * 1000));
      if (!document.hidden) await refresh().catch((problem) => { state.textContent = text.connectionLost; replace(links, explain(problem)); drawn = ""; });
    }
  }
  await refresh();
  follow();
}
