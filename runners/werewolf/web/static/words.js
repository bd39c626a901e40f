// All texts of the pages in both languages, and English texts of events (the server sends Chinese ones).

import { h, quoted, store, stored, tidy } from "./dom.js";
import { PRESETS, ROLES } from "./roles.js"; // the server writes it, from each role's file

export const markOf = (role) => ROLES[role]?.mark;
export const isWolf = (role) => kindOfRole(role) === "wolf";
export const kindOfRole = (role) => ROLES[role]?.kind ?? "unknown";
const roleNames = (language) => Object.fromEntries(Object.entries(ROLES).map(([role, card]) => [role, card[language]]));

/** A preset's number of players, and its 神职 and special wolves. */
export function presetParts(name) {
  if (!Object.hasOwn(PRESETS, name ?? "")) return [tidy(name ?? "").slice(0, LONGEST_NAME), ""];
  const { seats, named } = PRESETS[name], gods = named.filter((role) => !isWolf(role)), wolves = named.filter(isWolf);
  return say([`${seats}人`, [gods.map(markOf).join(""), ...wolves.map((role) => zh.roles[role])].filter(Boolean).join(" · ")], [`${seats} players`, [...gods, ...wolves].map((role) => en.roles[role].toLowerCase()).join(", ")]);
}
/** The special roles, if several presets have this number of players. */
export const boardName = (name) => (Object.entries(PRESETS).some(([other, { seats }]) => other !== name && seats === PRESETS[name]?.seats) ? presetParts(name)[1] : "");
export const presetName = (name) => presetParts(name).filter(Boolean).join(say(" · ", ": "));

const zh = {
  title: "狼人杀", games: "对局", runs: "运行", play: "入座", language: "English", theme: "明暗",
  god: "上帝视角", public: "公开视角", seatView: (n) => `${n}号视角`, view: "视角", thoughts: "思考", speed: "速度",
  first: "开头", last: "结尾", back: "上一步", next: "下一步", start: "播放", pause: "暂停", copyLink: "复制此刻链接", copied: "已复制",
  night: (d) => `第${d}夜`, day: (d) => `第${d}天`, more: "显示全部", live: "直播", waitingFor: "正在等",
  help: "按键：← → 单步，空格播放，Home/End 首尾，V 换视角，T 思考，[ ] 速度",
  roles: roleNames("zh"),
  sides: { wolf: "狼人阵营", good: "好人阵营", draw: "平局" },
  results: { wolf: "狼人阵营胜利", good: "好人阵营胜利", draw: "平局" },
  deaths: { night: "夜死", poison: "毒杀", exile: "放逐", shot: "枪杀", taken: "被自爆带走", duel: "决斗", explode: "自爆" },
  badges: { night: "夜", poison: "毒", exile: "票", shot: "枪", taken: "带", duel: "斗", explode: "爆", sheriff: "警", running: "上", abstain: "弃" },
  marks: { kill: "刀", guard: "守", save: "救", poison: "毒" },
  arrows: { vote: "", kill: "刀", propose: "", guard: "守", checkWolf: "狼人", checkGood: "好人", save: "救", poison: "毒", shot: "带走", badge: "警徽" },
  sheriff: "警长", asked: "在想", abstain: "弃票", silent: "（过）",
  heads: { wolf_says: "对狼队友说", campaign_speech: "警上发言", sheriff_pk_speech: "警长PK发言", speech: "发言", closing_speech: "归票发言", pk_speech: "PK发言", last_words: "遗言" },
  proposes: (s) => `提议袭击${s}号`, closes: (s) => `归票${s}号`, secretTo: (l) => `仅${l}知道`,
  decisions: { wolf_talk: "狼人商议", guard: "守护", wolf_kill: "袭击", seer_check: "查验", witch: "用药", sign_up: "上警", campaign_speech: "警上发言", sheriff_vote: "警长投票", sheriff_pk_speech: "警长PK发言", sheriff_pk_vote: "警长PK投票", withdrawal: "退水", explosion: "自爆", last_words: "遗言", shot: "开枪", take: "带人", badge: "警徽", speaking_order: "发言顺序", speech: "发言", closing_speech: "归票", duel: "决斗", exile_vote: "放逐投票", pk_speech: "PK发言", pk_vote: "PK投票" },
  notices: { waiting: "还在排队，没有运行器取走", failed: "这一局没有打完", cancelled: "这一局被取消了" },
  tokens: "看 token", unusable: "回复无效", reask: "重问", version: (v) => `策略 v${v}`, worth: (n) => `胜负奖励的平均值，决定前 → 决定后：由此打下去的 ${n} 局`, noTokens: "没有保存 token", living: "存活",
  nothingYet: "还没有对局", connectionLost: "连接断开，正在重连…", failed: "出错了", loading: "载入中…",
  rewards: "奖励", about: "关于此局", close: "关闭", compare: "并排比较",
};

const en = {
  title: "Werewolf", games: "Games", runs: "Runs", play: "Play", language: "中文", theme: "Theme",
  god: "God view", public: "Public view", seatView: (n) => `Seat ${n}'s view`, view: "View", thoughts: "Thoughts", speed: "Speed",
  first: "Start", last: "End", back: "Back", next: "Next", start: "Play", pause: "Pause", copyLink: "Copy link to this moment", copied: "Copied",
  night: (d) => `Night ${d}`, day: (d) => `Day ${d}`, more: "show all", live: "live", waitingFor: "Waiting for",
  help: "Keys: ← → step, space plays, Home/End, V view, T thoughts, [ ] speed",
  roles: roleNames("en"),
  sides: { wolf: "Wolves", good: "Good side", draw: "Draw" },
  results: { wolf: "The wolves won", good: "The good side won", draw: "A draw" },
  deaths: { night: "died at night", poison: "poisoned", exile: "exiled", shot: "shot", taken: "taken along", duel: "died in a duel", explode: "exploded" },
  badges: { night: "killed", poison: "poison", exile: "exiled", shot: "shot", taken: "taken", duel: "duel", explode: "blew up", sheriff: "sheriff", running: "runs", abstain: "no vote" },
  marks: { kill: "kill", guard: "guard", save: "save", poison: "poison" },
  arrows: { vote: "", kill: "kill", propose: "", guard: "guard", checkWolf: "wolf", checkGood: "good", save: "save", poison: "poison", shot: "takes", badge: "badge" },
  sheriff: "Sheriff", asked: "thinking", abstain: "abstains", silent: "(passes)",
  heads: { wolf_says: "to the wolves", campaign_speech: "campaign speech", sheriff_pk_speech: "runoff speech", speech: "speech", closing_speech: "sheriff's closing", pk_speech: "runoff speech", last_words: "last words" },
  proposes: (s) => `proposes ${s}`, closes: (s) => `calls for ${s}`, secretTo: (l) => `known to ${l}`,
  decisions: { wolf_talk: "wolves' talk", guard: "guard", wolf_kill: "kill", seer_check: "check", witch: "potions", sign_up: "run for sheriff", campaign_speech: "campaign speech", sheriff_vote: "sheriff vote", sheriff_pk_speech: "runoff speech", sheriff_pk_vote: "runoff vote", withdrawal: "withdrawal", explosion: "explosion", last_words: "last words", shot: "shot", take: "take along", badge: "badge", speaking_order: "speaking order", speech: "speech", closing_speech: "closing speech", duel: "duel", exile_vote: "exile vote", pk_speech: "runoff speech", pk_vote: "runoff vote" },
  notices: { waiting: "Queued: no runner has taken it yet", failed: "This game was not finished", cancelled: "This game was cancelled" },
  tokens: "Tokens", unusable: "invalid reply", reask: "re-ask", version: (v) => `policy v${v}`, worth: (n) => `mean reward of the outcome before → after the decision, over ${n} branches from it`, noTokens: "no tokens stored", living: "alive",
  nothingYet: "No games yet", connectionLost: "Connection lost, reconnecting…", failed: "Something went wrong", loading: "Loading…",
  rewards: "Rewards", about: "About this game", close: "Close", compare: "Side by side",
};

const asked = new URLSearchParams(location.search).get("lang");
if (asked) store("lang", asked);
let chosen = asked ?? stored("lang") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
if (chosen !== "en") chosen = "zh";
document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";

export const lang = () => chosen;
export const words = () => (chosen === "zh" ? zh : en);
export const say = (chinese, english) => (chosen === "zh" ? chinese : english);
export function switchLanguage() {
  const other = chosen === "zh" ? "en" : "zh", url = new URL(location.href);
  if (store("lang", other)) url.searchParams.delete("lang"); else url.searchParams.set("lang", other);
  location.replace(url);
}

export const QUESTIONS = {
  wolf_talk: "Tell your fellow wolves your plan; you may propose a victim.", guard: "Whom do you protect tonight?", wolf_kill: "Whom do you attack tonight?", seer_check: "Whom do you check tonight?", witch: "Do you use a potion tonight?",
  sign_up: "Do you run for sheriff?", campaign_speech: "Give your campaign speech.", sheriff_vote: "Whom do you vote for as sheriff?", sheriff_pk_speech: "You are tied: speak once more for the badge.", sheriff_pk_vote: "Runoff: whom do you vote for as sheriff?",
  withdrawal: "Do you withdraw from the election?", explosion: "Do you explode now?", last_words: "Your last words.", shot: "You are out: do you shoot somebody?", take: "You exploded: whom do you take with you?", badge: "You are out: hand the badge on, or tear it up.", speaking_order: "Sheriff: choose the speaking order; you speak last.", speech: "It is your turn to speak.", closing_speech: "Sheriff: speak last; you may call for an exile.",
  duel: "The speeches are over: do you duel somebody?", exile_vote: "Whom do you vote to exile?", pk_speech: "You are tied: speak for yourself.", pk_vote: "Runoff: whom do you vote to exile?",
};
/** Players by name in tasks: name and description in both languages. */
export const PLAYERS = {
  policy: ["策略模型", "the policy", "训练中的语言模型，水平随训练而变。", "The language model in training; its strength depends on the training so far."],
  expert: ["高手", "expert", "按每句话推算身份，会悍跳，会做局。最难赢。", "Computes role odds from every speech, claims false roles and sets traps. The strongest."],
  patient: ["耐心玩家", "patient", "拿不准时打成平票，多等一夜的查验。", "Ties the vote when unsure, to gain one more check."],
  scripted: ["脚本玩家", "scripted", "按常理发言和投票，报查验，按证据站边。适合第一局。", "Speaks and votes by rules, reports checks, follows evidence. Good for a first game."],
  timid: ["胆小玩家", "timid", "按常理玩，但多半弃票。", "Plays like scripted, but mostly abstains."],
  poser: ["悍跳玩家", "poser", "一名狼人悍跳预言家（有女巫时首夜先自刀），一名村民跳预言家挡刀。", "A wolf claims to be the seer (with a witch, the wolves attack it first); a villager claims it too."],
  follower: ["跟票玩家", "follower", "谁被点名最多就投谁。", "Votes for the seat that most speeches accuse."],
  random: ["随机玩家", "random", "随便选，什么都可能发生。", "Answers at random."],
  person: ["真人", "a person", "", ""],
};
const LONGEST_NAME = 60;
export const playerName = (name) => (Object.hasOwn(PLAYERS, name) ? say(PLAYERS[name][0], PLAYERS[name][1]) : tidy(name).slice(0, LONGEST_NAME));

/** A run's name from its id, also from that of its evaluations. */
export const withoutHash = (run) => run.replace(/(-evaluation)?-[0-9a-f]{8}(-evaluation)?$/, "");

/** A policy by its resources id: run name and version. */
export function policyName(id) {
  const [, run, version] = /^(.+?)\.policy-0*(\d+)$/.exec(id) ?? [null, id];
  return [runName(withoutHash(run ?? "")), version && words().version(version)].filter(Boolean).join(" · ");
}

const REPLY_ERRORS = {
  empty: ["是空的", "empty"], no_choice: ["没有明确的选择", "no clear choice"], ambiguous: ["选了不止一个", "more than one choice"], negated: ["选择带有否定", "a negated choice"], illegal_target: ["不在可选范围内", "not among the choices"], cut: ["太长，被截断", "truncated"], only_thought: ["只有思考", "thought only"], no_speech: ["没有要说的话", "no speech"], defaulted: ["按默认行动", "default action"],
};
const STATES = { queuing: ["排队", "queued"], requeuing: ["重新排队", "requeued"], preparing: ["进行中", "playing"], running: ["进行中", "playing"], succeeded: ["结束", "finished"], failed: ["失败", "failed"], cancelled: ["取消", "cancelled"] };
export const stateWord = (status) => (Object.hasOwn(STATES, status) ? say(...STATES[status]) : tidy(status));
/** The reason of an invalid reply, by its code. */
export const replyError = (code) => (Object.hasOwn(REPLY_ERRORS, code) ? say(...REPLY_ERRORS[code]) : tidy(code));

const STAGES = { imitate: ["模仿", "imitation"], train: ["训练", "training"] };

/** A run's display name: for a run of a recipe the recipe's name without its time, the seed and the stage. */
export function runName(name) {
  const [run, recipe] = tidy(name).split("@"), [, seed, stage] = /^seed-(\d+)(?:-(.+?))?(?:-warm-start)?$/.exec(run) ?? [];
  const own = seed ? [say(`种子 ${seed}`, `seed ${seed}`), stage && (Object.hasOwn(STAGES, stage) ? say(...STAGES[stage]) : stage)] : [run];
  return [recipe?.replace(/-\d{8}-\d{6}$/, ""), ...own].filter(Boolean).join(" · ");
}

/** The display name of an evaluation or step, by its name in files. */
export function stepName(label) {
  const step = /^step[- ]0*(\d+)$/.exec(label)?.[1];
  return step ? say(`第${step}步`, `step ${step}`) : tidy(label);
}

const NOT_THERE = {
  game: ["这里没有这一局。", "There is no such game here."], run: ["这里没有这个运行。", "There is no such run here."], report: ["这里没有这份报告。", "There is no such report here."],
  table: ["没有这张牌桌；半小时没人看，牌桌就会收起。", "There is no such table; tables are closed after half an hour without an open page."], seat: ["没有这个座位；半小时没人看，牌桌就会收起。", "There is no such seat; tables are closed after half an hour without an open page."],
};

/** An error in the page's language, followed by the server's message in English. */
export function explain(problem) {
  const kind = /^\/api\/([a-z]+)/.exec(problem.path ?? "")?.[1];
  const told = problem.status === undefined ? ["连不上服务器。", "Cannot reach the server."]
    : problem.status === 401 ? ["需要访问令牌：请用启动时打印出来的、带 ?token=… 的地址。", "Access token required: open the address with ?token=… that was printed at the start."]
    : problem.status === 404 ? NOT_THERE[kind] ?? ["这个地址什么也没有。", "Page not found."]
    : problem.status === 502 ? ["中枢没有给出数据。", "The hub returned no data."]
    : problem.status >= 500 ? ["服务器出错了，原因见它的日志。", "The server failed; its log has the reason."] : ["服务器不接受这个请求。", "The server rejects this request."];
  return [say(...told), [400, 403, 502].includes(problem.status) ? h("small", { class: "faint", lang: "en" }, ` ${tidy(problem.message)}`) : null];
}

const list = (text) => (text ?? "").split(",").filter(Boolean).join(", ");
const WAYS = { sheriff_left: "up from the sheriff", sheriff_right: "down from the sheriff", dead_left: "up from the dead seat", dead_right: "down from the dead seat" };
const LOST = { nobody_runs: "nobody runs", no_voters: "nobody may vote", no_votes: "all abstained", tied_twice: "tied twice", swallowed: "two explosions" };
const ENGLISH = {
  game_start: (e) => `The game begins with ${e.data?.seats ?? "?"} seats.`,
  role_dealt: (e) => `Seat ${e.seat} is dealt: ${en.roles[e.data?.role] ?? e.data?.role}.`,
  wolf_team: (e) => `The wolves are ${list(e.data?.seats)}${Object.entries(e.data ?? {}).map(([role, seats]) => (ROLES[role] ? `, ${list(seats)} being the ${en.roles[role].toLowerCase()}` : "")).join("")}.`,
  night_falls: (e) => `Night ${e.day} falls.`,
  wolf_vote: (e) => (e.target ? `Wolf ${e.seat} votes to kill ${e.target}.` : `Wolf ${e.seat} votes to kill nobody.`),
  wolf_target: (e) => (e.target ? `The wolves attack ${e.target}.` : "The wolves attack nobody."),
  guarded: (e) => (e.target ? `Guard ${e.seat} protects ${e.target}.` : `Guard ${e.seat} protects nobody.`),
  seer_result: (e) => `Seer ${e.seat ?? ""} checks ${e.target}: ${e.data?.side === "wolf" ? "a wolf" : "good"}.`,
  witch_told: (e) => (e.target ? `The witch learns that ${e.target} was attacked.` : "The witch learns that nobody was attacked."),
  antidote_used: (e) => `Witch ${e.seat} saves ${e.target}.`,
  poison_used: (e) => `Witch ${e.seat} poisons ${e.target}.`,
  shot_status: (e) => `Seat ${e.seat} ${e.data?.may_shoot === "yes" ? "may" : "may not"} shoot.`,
  day_breaks: (e) => `Day ${e.day} breaks.`,
  signed_up: (e) => (e.data?.seats ? `Running for sheriff: ${list(e.data.seats)}.` : "Nobody runs for sheriff."),
  withdrew: (e) => `${e.seat} withdraws.`,
  sheriff_vote: (e) => (e.target ? `${e.seat} votes for ${e.target} as sheriff.` : `${e.seat} abstains.`),
  sheriff_elected: (e) => `${e.target} is elected sheriff.`,
  election_put_off: () => "After an explosion the election is put off to the next day.",
  badge_lost: (e) => `There is no sheriff: ${LOST[e.data?.reason] ?? "?"}.`,
  deaths_announced: (e) => (e.data?.seats ? `Dead last night: ${list(e.data.seats)}.` : "A peaceful night: nobody died."),
  shot: (e) => `${e.seat} ${e.data?.exploded ? "explodes and takes" : "shoots"} ${e.target}.`,
  badge_passed: (e) => `${e.seat} hands the badge to ${e.target}.`,
  badge_torn: (e) => `${e.seat} tears the badge up.`,
  speaking_order: (e) => `Speaking order${e.data?.way ? ` (${WAYS[e.data.way] ?? e.data.way})` : ""}: ${list(e.data?.seats)}.`,
  duel: (e) => `Knight ${e.seat} duels ${e.target}, who is ${e.data?.side === "wolf" ? "a wolf" : "good"}: ${e.data?.dead} is out.`,
  vote: (e) => (e.target ? `${e.seat} votes for ${e.target}.` : `${e.seat} abstains.`),
  vote_count: (e) => (e.data?.count ? `Count: ${e.data.count.split(",").map((entry) => entry.replace(":", " has ")).join(", ")}.` : "Count: no votes."),
  vote_tied: (e) => `Tied: ${list(e.data?.seats)}.`,
  exiled: (e) => `${e.target} is exiled.`,
  revealed: (e) => `${e.target} shows the card: ${(en.roles[e.data?.role] ?? "?").toLowerCase()}. It stays, and can neither vote nor be voted for.`,
  nobody_exiled: () => "Nobody is exiled today.",
  exploded: (e) => `Wolf ${e.seat} explodes; the day ends.`,
  game_over: (e) => `The game is over: ${(en.results[e.data?.result] ?? "").toLowerCase()}.`,
};

/** Whom a speech proposes as a victim or calls to exile; empty for other speeches. */
export const proposal = ({ kind, target }) => (target && { wolf_says: words().proposes, closing_speech: words().closes }[kind]?.(target)) || "";
/** The text of a speech. */
export const spoken = ({ text }) => (text ? quoted(text, words()) : h("i", {}, words().silent));

/** An event on one line in the page's language, without speeches. */
export function lineOf(event) {
  if (chosen === "en" && Object.hasOwn(ENGLISH, event.kind)) return tidy(ENGLISH[event.kind](event));
  const whose = event.seat && ["seer_result", "witch_told", "shot_status"].includes(event.kind) ? `${event.seat}号：` : "";
  return whose + tidy(event.line ?? event.text ?? event.kind);
}
