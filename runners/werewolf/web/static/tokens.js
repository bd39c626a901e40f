// A seat's tokens as the model saw and sampled them, with log-probs and training data.

import { ask, h, icon, replace, tidy } from "./dom.js";
import { explain, playerName, replyError, say, words } from "./words.js";

export async function openTokens(game, turn) {
  const text = words();
  const body = h("div", { class: "tokens-body" }, h("p", { class: "loading" }, text.loading));
  const dialog = h("dialog", { class: "tokens", "aria-label": text.tokens },
    h("header", {}, h("h2", {}, `${say("座位", "Seat")} ${turn.seat} · ${text.decisions[turn.decision] ?? turn.decision}`), h("button", { type: "button", class: "key", "aria-label": text.close, onclick: () => dialog.close() }, icon("close"))), body);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  try {
    const data = await ask("/api/tokens", { id: game.id, view: game.view, seat: turn.seat, segment: turn.segment ?? 0 });
    show(body, data, turn, game.about?.evaluation);
  } catch (problem) {
    replace(body, h("p", { class: "notice" }, explain(problem)));
  }
}

const COLOURS = {
  logprob: { name: () => say("对数概率", "log-prob"), of: (data, i) => data.logprobs[i] },
  advantage: { name: () => say("优势", "advantage"), of: (data, i) => data.advantages?.[i] },
  ratio: { name: () => say("训练/采样 比值", "ratio trainer/sampler"), of: (data, i) => (data.trainer?.[i] === null || data.trainer?.[i] === undefined || data.logprobs[i] === null ? null : Math.exp(data.trainer[i] - data.logprobs[i])) },
};

function show(body, data, turn, evaluated) {
  let colour = "logprob";
  const stream = h("div", { class: "stream", lang: "zh" });
  const detail = h("output", { class: "token-detail" }, say("指向或选中一个 token 看它的数值", "Hover or focus a token to see its values"));
  const mine = data.turns.find((entry) => entry.turn === turn.turn) ?? data.turns.at(-1);
  const known = [
    [say("采样的对数概率", "log-probs of the sampler"), data.logprobs.some((value) => value !== null)],
    [say("奖励、优势", "reward, advantages"), data.advantages !== null],
    [say("训练端对数概率与比值", "the trainer's log-probs and ratio"), data.trainer !== null],
    [say("文字（分词器）", "texts (tokenizer)"), data.texts !== null],
  ];
  const picker = h("div", { class: "tabs", role: "radiogroup", "aria-label": say("颜色", "colour") }, Object.entries(COLOURS).map(([name, entry]) => {
    const missing = (name === "advantage" && !data.advantages) || (name === "ratio" && !data.trainer);
    return h("button", { type: "button", role: "radio", "aria-checked": String(name === colour), disabled: missing, onclick: (event) => {
      colour = name;
      for (const other of picker.children) other.setAttribute("aria-checked", String(other === event.currentTarget));
      paint();
    } }, entry.name());
  }));
  const key = h("div", { class: "legend", "aria-hidden": "true" });
  const spans = data.ids.map((id, index) => {
    const sampled = data.sampled[index] === 1;
    const text = data.texts ? data.texts[index] : String(id);
    const shown = text === "" ? "·" : tidy(text).replaceAll("\n", "⏎\n");
    const span = h("span", { class: `token ${sampled ? "sampled" : "given"}`, tabindex: sampled ? "0" : null, "data-index": index }, data.texts ? shown : `${shown} `);
    const tell = () => { detail.textContent = describe(data, index); };
    span.addEventListener("pointerenter", tell);
    span.addEventListener("focus", tell);
    return span;
  });
  function paint() {
    const values = data.ids.map((_, index) => (data.sampled[index] ? COLOURS[colour].of(data, index) : null));
    const scale = colour === "advantage" ? Math.max(0.1, ...values.filter((value) => typeof value === "number").map(Math.abs)) : 1;
    replace(key, legend(colour, scale));
    spans.forEach((span, index) => {
      const value = values[index];
      span.dataset.level = value === null || value === undefined ? "none" : level(colour, value, scale);
    });
  }
  for (const entry of data.turns) {
    const current = entry === mine;
    const head = h("div", { class: "turn-head" }, h("b", {}, `${say("第", "Turn ")}${entry.turn}${say("回合", "")} · ${words().decisions[entry.decision] ?? entry.decision}`),
      h("span", { class: "faint" }, ` ${playerName(entry.policy)} ${evaluated && entry.policy === "policy" ? tidy(evaluated) : `v${entry.policy_version}`} · ${say("给定", "given")} ${entry.start - entry.given} · ${say("采样", "sampled")} ${entry.end - entry.start}${entry.finish === "length" ? say(" · 被截断", " · cut") : ""}${entry.error ? ` · ⚠ ${replyError(entry.error)}` : ""}`));
    const given = h("details", { class: "given-part", open: current }, h("summary", {}, say("给定的输入", "prompt")), spans.slice(entry.given, entry.start));
    stream.append(h("section", { class: `token-turn${current ? " current" : ""}` }, head, given, h("div", { class: "sampled-part" }, spans.slice(entry.start, entry.end))));
  }
  paint();
  replace(body,
    h("p", { class: "faint" }, `${say("段", "segment")} ${turn.segment ?? 0} · ${data.ids.length} tokens, ${data.sampled.filter(Boolean).length} ${say("个是采样的", "sampled")}`,
      data.batch ? ` · ${data.batch.file}${data.batch.reward !== undefined && data.batch.reward !== null ? ` · ${say("奖励", "reward")} ${Number(data.batch.reward).toFixed(3)}` : ""}` : ""),
    data.batch?.differs ? h("p", { class: "notice" }, say("批次里的 token 与此处不同，没有合并", "the batch's tokens differ, so its data are not shown")) : null,
    data.complete ? null : h("p", { class: "notice" }, say("这一段缺少更早的回合", "earlier turns of this segment are missing")),
    h("ul", { class: "known" }, known.map(([name, is]) => h("li", { class: is ? "yes" : "no" }, is ? "✓ " : "– ", name, is ? "" : say("：没有保存", ": not stored")))),
    picker, key, stream, detail);
  stream.querySelector(".current .sampled-part")?.scrollIntoView({ block: "center" });
}

// Seven steps, by underline weight as well as by colour.
function level(colour, value, scale) {
  if (colour === "logprob") return value > -0.1 ? "3" : value > -0.7 ? "2" : value > -1.6 ? "1" : value > -3 ? "-1" : value > -5 ? "-2" : "-3";
  const x = colour === "ratio" ? Math.log(Math.max(value, 1e-9)) / 0.5 : value / scale;
  return Math.abs(x) < 0.05 ? "0" : String(Math.sign(x) * (Math.abs(x) < 0.34 ? 1 : Math.abs(x) < 0.67 ? 2 : 3));
}

// Legend of each level, in the units of the colouring: nats, advantage, or a factor.
function legend(colour, scale) {
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  const names = colour === "logprob"
    ? { "-3": "< −5", "-2": "−5…−3", "-1": "−3…−1.6", "1": "−1.6…−0.7", "2": "−0.7…−0.1", "3": "> −0.1" }
    : Object.fromEntries([-3, -2, -1, 0, 1, 2, 3].map((step) => [step, colour === "ratio" ? `×${Math.exp(step * 0.17).toFixed(2)}` : step ? signed(step * scale / 3) : "0"]));
  const levels = ["-3", "-2", "-1", "0", "1", "2", "3"].filter((name) => name in names);
  return [h("span", { class: "faint" }, COLOURS[colour].name()), levels.map((name) => h("span", { class: "token sampled", "data-level": name }, names[name])), h("span", { class: "token given" }, say("给定", "given"))];
}

function describe(data, index) {
  const number = (value, digits = 4) => (value === null || value === undefined ? say("未知", "unknown") : Number(value).toFixed(digits));
  const parts = [`#${index}`, `id ${data.ids[index]}`];
  if (!data.sampled[index]) return [...parts, say("给定，不参与训练", "prompt, not trained on")].join(" · ");
  const ratio = COLOURS.ratio.of(data, index);
  return [...parts, `log p ${number(data.logprobs[index])} (p ${data.logprobs[index] === null ? "?" : Math.exp(data.logprobs[index]).toFixed(3)})`, `${COLOURS.advantage.name()} ${number(data.advantages?.[index])}`, `${say("比值", "ratio")} ${number(ratio, 3)}`].join(" · ");
}
