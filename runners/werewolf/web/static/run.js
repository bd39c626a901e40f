// A run: curves, evaluations, win rates between players, and sample games; updated while the run continues.

import { gameCards } from "./cards.js";
import { chart, range } from "./chart.js";
import { ask, h, replace, tidy } from "./dom.js";
import { explain, playerName, presetName, runName, say, stepName, words } from "./words.js";

const EVERY_SECONDS = 5;
const side = (name) => words().sides[name];
const role = (name) => words().roles[name] ?? tidy(name);
const won = (who, opponent) => say(`${{ both: "两边合计", wolf: "当狼人", good: "当好人" }[who]}对${playerName(opponent)}的胜率`, `${{ both: "both sides", wolf: "as wolves", good: "as good side" }[who]} against ${playerName(opponent)}`);
// Groups of curves: pattern of the key, name (a function of the match), unit. The first group is shown large.
const EVALUATED = [
  [/^evaluation\/win_rate$/, () => say("评估胜率", "win rate in evaluations"), "share"], [/^evaluation\/win_rate\/(both|wolf|good)\/vs\/([^/]+)$/, won, "share"],
  [/^evaluation\/reward$/, () => say("评估的平均奖励", "mean reward in evaluations")], [/^evaluation\/strength$/, () => say("实力（参照玩家为 0）", "strength (reference player: 0)"), "log-odds"],
];
const LEARNED = [
  [/^reward\/(wolf|good)$/, (who) => say(`${side(who)}的平均奖励`, `mean reward, ${side(who)}`)], [/^reward\/role\/(\w+)$/, (who) => say(`${role(who)}的平均奖励`, `mean reward, ${role(who)}`)], [/^agents\/reward\/(.+)$/, (name) => say(`奖励 ${tidy(name)}`, `reward ${tidy(name)}`)],
  [/^games\/(wolf|good|draw)_share$/, (who) => say(`训练局中${side(who)}${who === "draw" ? "" : "胜"}的比例`, `training games: ${side(who)}${who === "draw" ? "" : " won"}`), "share"], [/^turns\/valid_share$/, () => say("有效回复", "valid replies"), "share"],
  [/^evaluation\/invalid_replies$/, () => say("评估中的无效回复", "invalid replies in evaluations"), "share"], [/^evaluation\/games_with_identity_leak$/, () => say("评估中泄露身份的局", "evaluated games with an identity leak"), "share"],
  [/^imitation\/held_out_loss$/, () => say("模仿：留出数据的损失", "imitation: held-out loss"), "nats/token"], [/^imitation\/loss$/, () => say("模仿：训练损失", "imitation: loss"), "nats/token"], [/^games\/days_mean$/, () => say("一局的天数", "days of a game"), say("天", "days")], [/^turns\/per_rollout$/, () => say("一局的模型回合", "model turns of a game")],
];
// who: the policy, where several learn.
const ofPolicy = (who, name) => (who ? `${name}, ${tidy(who)}` : name);
const INSIDE = [
  [/^(?:([^/]+)\/)?actor\/entropy$/, (who) => ofPolicy(who, say("熵", "entropy")), "nats"], [/^sampling\/entropy\/(wolf|good)$/, (who) => say(`采样的熵，${side(who)}`, `entropy of sampling, ${side(who)}`), "nats"], [/^(?:([^/]+)\/)?actor\/ppo_kl$/, (who) => ofPolicy(who, say("一步更新的 KL", "KL of one update")), "nats"], [/^(?:([^/]+)\/)?actor\/kl_loss$/, (who) => ofPolicy(who, say("离起点的 KL", "KL from the initial policy")), "nats"], [/^(?:([^/]+)\/)?actor\/pg_clipfrac$/, (who) => ofPolicy(who, say("被裁剪的 token", "clipped tokens")), "share"],
  [/^(?:([^/]+)\/)?actor\/pg_loss$/, (who) => ofPolicy(who, say("策略梯度损失", "policy-gradient loss"))], [/^(?:([^/]+)\/)?actor\/grad_norm$/, (who) => ofPolicy(who, say("梯度范数", "gradient norm"))], [/^policy_lag\/mean$/, () => say("策略滞后", "policy lag"), say("版", "versions")], [/^tokens\/trained$/, () => say("每步训练的 token", "tokens trained a step")], [/^tokens\/sampled_and_trained$/, () => say("每步训练的采样 token", "sampled tokens trained a step")],
  [/^seconds\/(step|play|update|evaluate)$/, (part) => ({ step: say("一步的时间", "time of a step"), play: say("对局的时间", "time of rollouts"), update: say("更新的时间", "time of the update"), evaluate: say("评估的时间", "time of an evaluation") })[part], say("秒", "s")],
];
const REPORTS = { "evaluations.html": ["评估报告", "Report of the evaluations"], "prompts.html": ["提示词报告", "Report on prompts"], "report.html": ["训练报告", "Report"], "recipe-report.html": ["整个配方的报告", "Report of the whole recipe"] };
export async function runPage(main, name) {
  const series = new Map();
  let position = 0;
  const drawn = {};
  // Parts are redrawn for news alone: else a scrolled table jumps back, and a link loses the focus.
  const isNew = (part, value) => { const now = JSON.stringify(value ?? null); return drawn[part] !== now && ((drawn[part] = now), true); };
  const lost = h("p", { class: "notice", hidden: true });
  const section = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), content), grid = () => h("div", { class: "charts" }), folded = (title, inside) => h("details", { class: "card" }, h("summary", {}, title), inside);
  const numbers = h("div", { class: "numbers" }), reports = h("p", { class: "reports" }), evaluated = grid(), learned = grid(), inside = grid(), rest = grid(), evaluations = h("div", { class: "scroll" }), samples = h("div", {}), batches = h("p", { class: "faint" });
  const learning = section(say("学习", "Learning"), learned), people = h("section", { class: "card", hidden: true }), payoff = h("section", { class: "card", hidden: true }), training = h("section", { class: "card", hidden: true }), update = folded(say("优化与速度", "Optimisation and speed"), inside), more = folded(say("其他所有曲线", "All other curves"), rest);
  replace(main, h("section", { class: "card" }, h("h1", { dir: "auto" }, runName(name)), lost, numbers, reports), section(say("评估", "Evaluations"), evaluated, evaluations), payoff, people, section(say("样例", "Sample games"), samples, batches), learning, training, update, more);

  async function refresh() {
    let data, news = position === 0;
    do { // a long log arrives in parts
      data = await ask("/api/run", { name, from: position });
      if (data.restarted) series.clear();
      news ||= data.steps.length > 0;
      position = data.position;
      for (const { step, data: values } of data.steps) for (const [metric, value] of Object.entries(values)) {
        if (typeof value !== "number" || !Number.isFinite(value)) continue;
        if (!series.has(metric)) series.set(metric, new Map());
        series.get(metric).set(step, value);
      }
    } while (data.more);
    if (isNew("summary", data.summary) || news) drawNumbers(data.summary);
    if (news) drawCharts(data.payoff?.cells ?? []);
    if (isNew("reports", data.reports)) replace(reports, data.reports.map((file) => h("a", { class: "tag", href: `/report/${encodeURIComponent(name)}/${encodeURIComponent(file)}`, target: "_blank", rel: "noopener" }, Object.hasOwn(REPORTS, file) ? say(...REPORTS[file]) : tidy(file))));
    if (isNew("evaluations", data.evaluations)) drawEvaluations(data.evaluations);
    if (isNew("people", data.people)) drawPeople(data.people);
    if (isNew("payoff", data.payoff)) drawPayoff(data.payoff);
    if (isNew("batches", data.batches)) drawBatches(data.batches);
    batches.hidden = !data.samples.length;
    batches.textContent = data.batches.length ? say("训练批次保存了：在回放里打开“看 token”能看到奖励、优势和比值", '"Tokens" in a replay shows reward, advantage and ratio: batches were saved') : say("没有保存训练批次（log.save_batches）", "no batches were saved (log.save_batches)");
    if (!samples.querySelector("input:checked") && isNew("samples", data.samples.map((entry) => entry.id))) replace(samples, data.samples.length ? gameCards(data.samples) : h("p", { class: "faint" }, words().nothingYet));
  }

  function drawNumbers(summary) {
    const latest = (metric) => [...(series.get(metric)?.values() ?? [])].at(-1);
    const played = summary.rollouts ?? summary.games ?? {}, failed = typeof played.failed === "object" ? Object.values(played.failed).reduce((sum, count) => sum + count, 0) : played.failed; // imitation counts them by their reasons
    const steps = [...series.values()].reduce((most, values) => [...values.keys()].reduce((last, step) => Math.max(last, step), most), 0);
    const entries = [[say("步", "steps"), steps || null], [say("策略版本", "policy version"), latest("policy_version") ?? summary.policy_version], [say("局数", "games"), played.finished ?? played.learned_from], [say("失败的局", "games failed"), failed], [say("有效回复", "valid replies"), percent(latest("turns/valid_share") ?? summary.turns?.valid_share)], [say("胜率", "win rate"), percent(latest("evaluation/win_rate"))]];
    replace(numbers, entries.filter(([, value]) => value !== undefined && value !== null).map(([label, value]) => h("div", {}, h("b", {}, String(value)), h("span", {}, label))));
  }

  function drawCharts(cells) {
    const names = [...series.keys()].filter((metric) => !/\/(low|high)$/.test(metric)), drawn = new Set();
    const opponents = [...new Set(names.map((metric) => /\/vs\/([^/]+)$/.exec(metric)?.[1]).filter(Boolean))];
    const sides = ["wolf", "good"].filter((side) => names.some((metric) => metric.startsWith(`evaluation/win_rate/${side}/vs/`))), who = sides.length === 1 ? sides[0] : "both";
    if (opponents.length === 1 && series.has("evaluation/win_rate") || who !== "both") for (const opponent of opponents) drawn.add(`evaluation/win_rate/both/vs/${opponent}`); // the same curve
    const group = (known, large = false) => known.flatMap(([form, name, unit]) => names.filter((metric) => form.test(metric) && !drawn.has(metric)).map((metric) => {
      drawn.add(metric);
      const found = form.exec(metric).slice(1);
      const line = metric === "evaluation/strength" ? { value: 0, name: say("参照玩家", "reference player") } : !metric.startsWith("evaluation/win_rate") ? null : found.length ? inPlace(cells, ...found) : opponents.length === 1 ? inPlace(cells, who, opponents[0]) : null;
      return chart(name(...found), series.get(metric), series.get(`${metric}/low`), series.get(`${metric}/high`), { unit, line, large });
    }));
    replace(evaluated, group(EVALUATED, true));
    replace(learned, group(LEARNED));
    learning.hidden = !learned.children.length;
    const unseen = (box, content) => { const fill = () => { if (box.open) replace(box.lastElementChild, content()); }; box.ontoggle = fill; fill(); };
    const known = group(INSIDE), others = names.filter((metric) => !drawn.has(metric)).sort();
    update.hidden = known.length === 0;
    more.hidden = others.length === 0;
    unseen(update, () => known);
    unseen(more, () => others.map((metric) => chart(metric, series.get(metric), series.get(`${metric}/low`), series.get(`${metric}/high`))));
  }

  function drawEvaluations(found) {
    if (!found.length) return replace(evaluations, h("p", { class: "faint" }, say("还没有评估（evaluation.every_steps）", "no evaluations yet (evaluation.every_steps)")));
    const reward = say("奖励", "reward"), of = found.some((entry) => Object.keys(entry.scores).length) ? [say("对手", "against"), say("合计", "both sides"), say("当狼人胜", "won as wolves"), say("当好人胜", "won as good"), say("局数", "games"), say("实力", "strength")] : [found.some((entry) => entry.reward) ? reward : say("结果", "result")];
    const columns = [say("何时", "when"), ...of];
    const rows = found.flatMap((entry) => {
      const scores = Object.entries(entry.scores), span = Math.max(scores.length, 1), when = h("th", { scope: "rowgroup", rowspan: span }, stepName(entry.label));
      if (!scores.length) return [h("tr", {}, when, h("td", { colspan: columns.length - 1, "data-name": columns.at(-1) }, entry.reward ? [columns.length > 2 ? `${reward} ` : null, interval(entry.reward)] : entry.strength ? [`${say("实力", "strength")} `, interval(entry.strength)] : say("还没有结果", "no result yet")))];
      return scores.map(([opponent, of], number) => h("tr", {}, number ? null : when, h("td", {}, playerName(opponent)), ["both", "wolf", "good"].map((who) => h("td", { class: "value" }, share(of[who]))), h("td", { class: "value" }, String(of.both?.games ?? "–")), number ? null : h("td", { class: "value", rowspan: span }, entry.strength ? interval(entry.strength) : "–")));
    });
    replace(evaluations, table(columns, rows));
  }

  function drawPeople(found) {
    people.hidden = !found.length;
    if (found.length) replace(people, h("h2", {}, say("人来对局：人那一边的胜率", "People against the policy: games won by their side")), h("div", { class: "scroll" }, table([say("真人的对手", "people against"), say("当狼人的胜率", "won as wolves"), say("局数", "games"), say("当好人的胜率", "won as good"), say("局数", "games")], found.map((entry) => h("tr", {}, h("th", { scope: "row" }, stepName(entry.label)), ["wolf", "good"].flatMap((side) => [h("td", { class: "value" }, share(entry.by_side?.[side])), h("td", { class: "value" }, String(entry.by_side?.[side]?.games ?? 0))]))))));
  }

  function drawPayoff(found) {
    payoff.hidden = found === null;
    if (payoff.hidden) return;
    const { cells } = found, wolves = [...new Set(cells.map((cell) => cell.wolf))], goods = [...new Set(cells.map((cell) => cell.good))];
    const facts = [found.preset ? presetName(found.preset) : null, found.deals ? say(`每格 ${found.deals} 副牌`, `${found.deals} deals a cell`) : null].filter(Boolean).join(" · ");
    replace(payoff, h("h2", {}, say("两两胜率：狼人阵营（行是狼人，列是好人）", "Win rates between players: wolves (rows) against the good side (columns)")), h("p", { class: "faint" }, facts), h("div", { class: "scroll" }, h("table", { class: "list payoff" }, h("thead", {}, h("tr", {}, h("td"), goods.map((good) => h("th", { scope: "col", class: "value" }, playerName(good))))), h("tbody", {}, wolves.map((wolf) => h("tr", {}, h("th", { scope: "row" }, playerName(wolf)), goods.map((good) => {
      const cell = cells.find((entry) => entry.wolf === wolf && entry.good === good);
      if (!cell || !cell.games) return h("td", { class: "value" }, "–");
      const rate = cell.wolf_wins / cell.games;
      return h("td", { class: "value", style: { background: `color-mix(in srgb, var(--wolf) ${Math.round(rate * 35)}%, transparent)` } }, `${percent(rate)} `, h("small", {}, `n=${cell.games}${cell.draws ? say(` 平${cell.draws}`, `, ${cell.draws} drawn`) : ""}`));
    })))))));
  }

  function drawBatches(found) {
    training.hidden = !found.length;
    if (training.hidden) return;
    const value = (number, digits = 3) => (typeof number === "number" ? Number(number).toFixed(digits) : "–");
    replace(training, h("h2", {}, say("训练批次", "Training batches")), h("p", { class: "faint" }, say("优势和比值（训练端／采样端的概率）只按采样的 token 算", "advantages and ratios (trainer's to sampler's probability) are over sampled tokens")), h("div", { class: "scroll" }, table([say("步", "step"), say("序列", "sequences"), say("回合", "turns"), say("token", "tokens"), say("采样的", "sampled"), say("版本", "versions"), say("平均奖励", "mean reward"), say("优势 ± 标准差", "advantage ± s.d."), say("优势全为零的序列", "sequences of zero advantage"), say("比值（1%–99%）", "ratio (1–99 %)")], [...found].reverse().map((batch) => h("tr", {}, h("th", { scope: "row" }, batch.file.replace(/^step-0*|\.jsonl$/g, "")), batch.sequences === undefined ? h("td", { colspan: 9, class: "faint" }, batch.problem ? say(batch.problem === "too large to show" ? "文件太大，不显示" : "文件无法读取", tidy(batch.problem)) : say("正在读…", "loading…")) : [batch.sequences, batch.turns, batch.tokens, batch.sampled].map((count) => h("td", { class: "value" }, String(count))), batch.sequences === undefined ? null : [
      h("td", { class: "value" }, batch.versions ? [...new Set(batch.versions)].join("–") : "–"),
      h("td", { class: "value" }, Object.entries(batch.rewards).map(([side, reward]) => `${words().sides[side] ?? tidy(side)} ${value(reward)}`).join(", ")),
      h("td", { class: "value" }, batch.advantage ? `${value(batch.advantage.mean)} ± ${value(batch.advantage.deviation)}` : "–"),
      h("td", { class: "value" }, String(batch.zero_advantage)),
      h("td", { class: "value" }, batch.ratio ? `${value(batch.ratio.mean, 4)} (${value(batch.ratio.low, 3)}–${value(batch.ratio.high, 3)})` : "–")])), true)));
  }

  await refresh();
  const poll = async () => { // the next one after the answer: the server may be reading a large batch
    if (!document.hidden) await refresh().then(() => { lost.hidden = true; }, (problem) => { replace(lost, explain(problem)); lost.hidden = false; });
    setTimeout(poll, EVERY_SECONDS * 1000);
  };
  setTimeout(poll, EVERY_SECONDS * 1000);
}

// On a phone a row of a short table is a block with column names.
function table(columns, rows, many = false) {
  for (const row of rows) [...row.children].forEach((cell, number) => { cell.dataset.name ??= columns[number + (row.firstElementChild.tagName === "TH" ? 0 : 1)]; });
  return h("table", { class: `list${many ? "" : " blocks"}` }, h("thead", {}, h("tr", {}, columns.map((label) => h("th", { scope: "col" }, label)))), h("tbody", {}, rows));
}

const share = (score) => { const rate = score?.win_rate; return rate ? `${percent(rate.value)} (${Math.round(rate.low * 100)}–${Math.round(rate.high * 100)})` : "–"; };

const percent = (value) => (value === undefined || value === null ? undefined : `${Math.round(value * 1000) / 10} %`);

const interval = ({ value, low, high }) => `${value.toFixed(2)} (${range(low.toFixed(2), high.toFixed(2))})`;

// Win rate of a player in the policy's place, against itself: from the cross table, else by symmetry, without draws.
function inPlace(cells, who, player) {
  const cell = cells.find((entry) => entry.wolf === player && entry.good === player && entry.games);
  const rate = cell ? { wolf: cell.wolf_wins, good: cell.good_wins, both: (cell.wolf_wins + cell.good_wins) / 2 }[who] / cell.games : who === "both" ? 0.5 : null;
  return rate === null ? null : { value: rate, name: say(`${playerName(player)}自己`, `${playerName(player)} itself`) };
}
