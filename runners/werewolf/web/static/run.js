// A run at a glance: curves, evaluations, who beats whom, and sample games; the page follows the run.

import { ask, h, replace, svg, tidy } from "./dom.js";
import { gameList } from "./home.js";
import { say, words } from "./words.js";

const EVERY_SECONDS = 5;
// What is shown first, in this order, and what it is called where its name says too little.
const FIRST = [
  [/^evaluation\/win_rate$/, ["评估胜率", "win rate in evaluations"]], [/^evaluation\/strength$/, ["强度", "strength"]], [/^reward\/(wolf|good)$/, null], [/^turns\/valid_share$/, ["有效回答", "valid replies"]],
  [/^imitation\/(held_out_)?loss$/, null], [/^games\/(wolf|good|draw)_share$/, null], [/^evaluation\/win_rate\/(wolf|good)\/vs\//, null], [/^([^/]+\/)?actor\/(pg_loss|entropy|ppo_kl|grad_norm|kl_loss|pg_clipfrac)$/, null], [/^tokens\/(trained|sampled_and_trained)$/, null], [/^turns\/per_game$/, null], [/^seconds\/step$/, null],
];

export async function runsPage(main) {
  const { runs } = await ask("/api/config");
  replace(main, h("section", { class: "card" }, h("h1", {}, words().runs), runs.length ? h("ul", { class: "samples" }, runs.map((name) => h("li", {}, h("a", { href: `/run/${encodeURIComponent(name)}` }, tidy(name))))) : h("p", { class: "faint" }, say("文件夹里还没有训练（--runs）", "no runs in the folder (--runs)"))));
}

export async function runPage(main, name) {
  const series = new Map();
  let position = 0, samplesShown = "";
  const numbers = h("div", { class: "numbers" }), charts = h("div", { class: "charts" }), rest = h("div", { class: "charts" }), more = h("details", { class: "card" }, h("summary", {}, say("其他所有曲线", "All other curves")), rest), evaluations = h("div", { class: "scroll" }), people = h("section", { class: "card", hidden: true }), payoff = h("section", { class: "card", hidden: true }), training = h("section", { class: "card", hidden: true }), samples = h("div", {}), batches = h("p", { class: "faint" });
  replace(main, h("section", { class: "card" }, h("h1", { dir: "auto" }, tidy(name)), numbers), h("section", { class: "card" }, h("h2", {}, say("曲线", "Curves")), charts), h("section", { class: "card" }, h("h2", {}, say("评估", "Evaluations")), evaluations), people, payoff, training, h("section", { class: "card" }, h("h2", {}, say("样局", "Sample games")), batches, samples), more);

  async function refresh() {
    const data = await ask("/api/run", { name, from: position });
    if (data.position < position) series.clear();
    const news = data.steps.length > 0 || position === 0;
    position = data.position;
    for (const { step, data: values } of data.steps) for (const [metric, value] of Object.entries(values)) {
      if (typeof value !== "number" || !Number.isFinite(value)) continue;
      if (!series.has(metric)) series.set(metric, new Map());
      series.get(metric).set(step, value);
    }
    if (news) { drawNumbers(data.summary); drawCharts(); }
    drawEvaluations(data.evaluations);
    drawPeople(data.people);
    drawPayoff(data.payoff);
    drawBatches(data.batches);
    batches.textContent = data.batches.length ? say("训练批次保存了：在回放里打开“看 token”能看到奖励、优势和比值", '"Tokens" in a replay shows reward, advantage and ratio: batches were saved') : say("没有保存训练批次（log.save_batches）", "no batches were saved (log.save_batches)");
    const listed = JSON.stringify(data.samples.map((entry) => entry.id));
    if (listed !== samplesShown) { samplesShown = listed; replace(samples, data.samples.length ? gameList(data.samples) : h("p", { class: "faint" }, words().nothingYet)); }
  }

  function drawNumbers(summary) {
    const latest = (metric) => [...(series.get(metric)?.values() ?? [])].at(-1);
    const steps = Math.max(0, ...[...series.values()].flatMap((values) => [...values.keys()]));
    const entries = [[say("步", "steps"), steps], [say("策略版本", "policy version"), latest("policy_version") ?? summary?.policy_version], [say("局数", "games"), summary?.games?.finished], [say("失败的局", "games failed"), summary?.games?.failed], [say("有效回答", "valid replies"), percent(latest("turns/valid_share") ?? summary?.turns?.valid_share)], [say("胜率", "win rate"), percent(latest("evaluation/win_rate"))]];
    replace(numbers, entries.filter(([, value]) => value !== undefined && value !== null).map(([label, value]) => h("div", {}, h("b", {}, String(value)), h("span", {}, label))));
  }

  function drawCharts() {
    const names = [...series.keys()].filter((metric) => !/\/(low|high)$/.test(metric));
    const chosen = [...new Set(FIRST.flatMap(([form]) => names.filter((metric) => form.test(metric))))];
    replace(charts, chosen.length ? chosen.map(draw) : h("p", { class: "faint" }, words().nothingYet));
    const others = names.filter((metric) => !chosen.includes(metric)).sort();
    more.hidden = others.length === 0;
    const fill = () => { if (more.open) replace(rest, others.map(draw)); };
    more.ontoggle = fill;
    fill();
  }

  const draw = (metric) => chart(FIRST.find(([form, title]) => title && form.test(metric))?.[1]?.[words().language === "English" ? 0 : 1] ?? metric, series.get(metric), series.get(`${metric}/low`), series.get(`${metric}/high`));

  function drawEvaluations(found) {
    if (!found.length) return replace(evaluations, h("p", { class: "faint" }, say("还没有评估（evaluation.every_steps）", "no evaluations yet (evaluation.every_steps)")));
    const rows = found.flatMap((entry) => {
      const strength = entry.strength, opponents = Object.entries(entry.opponents ?? {});
      return opponents.map(([opponent, games], number) => {
        const scores = entry.scores?.[opponent] ?? {};
        return h("tr", {}, number ? null : [h("th", { scope: "rowgroup", rowspan: opponents.length }, tidy(entry.label)), h("td", { rowspan: opponents.length }, `v${entry.policy_version}`)], h("td", {}, tidy(opponent)), h("td", { class: "value" }, String(scores.both?.games ?? games)), ["wolf", "good", "both"].map((side) => h("td", { class: "value" }, share(scores[side]))), number ? null : h("td", { class: "value", rowspan: opponents.length }, strength ? `${strength.value.toFixed(2)} (${strength.low.toFixed(2)}–${strength.high.toFixed(2)})` : "–"));
      });
    });
    replace(evaluations, table([say("何时", "when"), say("策略", "policy"), say("对手", "against"), say("局数", "games"), say("当狼人胜", "won as wolves"), say("当好人胜", "won as good"), say("合计", "both"), say("强度", "strength")], rows));
  }

  function drawPeople(found) {
    people.hidden = !found.length;
    if (found.length) replace(people, h("h2", {}, say("人来对局：人那一边的胜率", "People against it: games that their side won")), h("div", { class: "scroll" }, table([say("人对", "people against"), say("当狼人胜", "won as wolves"), say("局数", "games"), say("当好人胜", "won as good"), say("局数", "games")], found.map((entry) => h("tr", {}, h("th", { scope: "row" }, tidy(entry.label)), ["wolf", "good"].flatMap((side) => [h("td", { class: "value" }, share(entry.by_side?.[side])), h("td", { class: "value" }, String(entry.by_side?.[side]?.games ?? 0))]))))));
  }

  function drawPayoff(found) {
    payoff.hidden = found === null;
    if (payoff.hidden) return;
    const { cells } = found, wolves = [...new Set(cells.map((cell) => cell.wolf))], goods = [...new Set(cells.map((cell) => cell.good))];
    const facts = [found.preset, found.deals ? say(`每格 ${found.deals} 副牌`, `${found.deals} deals a cell`) : null].filter(Boolean).map(tidy).join(" · ");
    replace(payoff, h("h2", {}, say("谁赢谁：狼人阵营胜率（行是狼人，列是好人）", "Who beats whom: win rate of the wolves (rows) against the good side (columns)")), h("p", { class: "faint" }, facts), h("div", { class: "scroll" }, h("table", { class: "list payoff" }, h("thead", {}, h("tr", {}, h("td"), goods.map((good) => h("th", { scope: "col", class: "value" }, tidy(good))))), h("tbody", {}, wolves.map((wolf) => h("tr", {}, h("th", { scope: "row" }, tidy(wolf)), goods.map((good) => {
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
    replace(training, h("h2", {}, say("训练批次", "Training batches")), h("p", { class: "faint" }, say("优势和比值（训练端／采样端的概率）只按采样的 token 算", "advantages and ratios (trainer's to sampler's probability) are over sampled tokens")), h("div", { class: "scroll" }, table([say("步", "step"), say("序列", "sequences"), say("回合", "turns"), say("token", "tokens"), say("采样的", "sampled"), say("版本", "versions"), say("平均奖励", "mean reward"), say("优势 ± 标准差", "advantage ± s.d."), say("没有信号的", "without signal"), say("比值（1%–99%）", "ratio (1–99 %)")], [...found].reverse().map((batch) => h("tr", {}, h("th", { scope: "row" }, batch.file.replace(/^step-0*|\.jsonl$/g, "")), batch.sequences === undefined ? h("td", { colspan: 9, class: "faint" }, batch.problem ? tidy(batch.problem) : say("正在读…", "being read…")) : [batch.sequences, batch.turns, batch.tokens, batch.sampled].map((count) => h("td", { class: "value" }, String(count))), batch.sequences === undefined ? null : [
      h("td", { class: "value" }, batch.versions ? [...new Set(batch.versions)].join("–") : "–"),
      h("td", { class: "value" }, Object.entries(batch.rewards).map(([side, reward]) => `${words().sides[side] ?? tidy(side)} ${value(reward)}`).join(", ")),
      h("td", { class: "value" }, batch.advantage ? `${value(batch.advantage.mean)} ± ${value(batch.advantage.deviation)}` : "–"),
      h("td", { class: "value" }, String(batch.silent)),
      h("td", { class: "value" }, batch.ratio ? `${value(batch.ratio.mean, 4)} (${value(batch.ratio.low, 3)}–${value(batch.ratio.high, 3)})` : "–")])))));
  }

  await refresh();
  setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, EVERY_SECONDS * 1000);
}

const table = (columns, rows) => h("table", { class: "list" }, h("thead", {}, h("tr", {}, columns.map((label) => h("th", { scope: "col" }, label)))), h("tbody", {}, rows));

const share = (score) => { const rate = score?.win_rate; return rate ? `${percent(rate.value)} (${Math.round(rate.low * 100)}–${Math.round(rate.high * 100)})` : "–"; };

const percent = (value) => (value === undefined || value === null ? undefined : `${Math.round(value * 1000) / 10} %`);

function chart(title, values, low, high) {
  const points = [...values].sort((a, b) => a[0] - b[0]), width = 320, height = 130, left = 44, bottom = 18, top = 8, right = 8;
  const all = [...points.map(([, value]) => value), ...(low?.values() ?? []), ...(high?.values() ?? [])];
  let min = Math.min(...all), max = Math.max(...all);
  const flat = min === max;
  if (flat) { min -= Math.abs(min) * 0.1 + 0.1; max += Math.abs(max) * 0.1 + 0.1; }
  const first = points[0][0], last = points.at(-1)[0];
  const x = (step) => left + ((step - first) / Math.max(last - first, 1)) * (width - left - right), y = (value) => top + (1 - (value - min) / (max - min)) * (height - top - bottom);
  const path = points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const bandSteps = low && high ? points.map(([step]) => step).filter((step) => low.has(step) && high.has(step)) : [];
  const band = bandSteps.length > 1 ? `M${bandSteps.map((step) => `${x(step).toFixed(1)} ${y(high.get(step)).toFixed(1)}`).join("L")}L${[...bandSteps].reverse().map((step) => `${x(step).toFixed(1)} ${y(low.get(step)).toFixed(1)}`).join("L")}Z` : null;
  const short = (value) => (Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : Number(value.toPrecision(3)).toString());
  const latest = points.at(-1)[1];
  return h("figure", { class: "chart" }, h("figcaption", {}, tidy(title), h("b", {}, short(latest))),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${tidy(title)}: ${points.length} ${say("个点，从", "points, from")} ${short(points[0][1])} ${say("到", "to")} ${short(latest)}` },
      svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}`, fill: "none" }), svg("text", { x: left - 5, y: flat ? y(points[0][1]) + 4 : top + 8, "text-anchor": "end" }, short(flat ? points[0][1] : max)), flat ? null : svg("text", { x: left - 5, y: height - bottom, "text-anchor": "end" }, short(min)), svg("text", { x: left, y: height - 4 }, String(first)), svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, String(last)),
      band ? svg("path", { class: "band", d: band }) : null, svg("path", { class: "curve", d: path }),
      points.length < 40 ? points.map(([step, value]) => svg("circle", { class: "dot", cx: x(step).toFixed(1), cy: y(value).toFixed(1), r: 2.6 }, svg("title", {}, `${step}: ${short(value)}`))) : null));
}
