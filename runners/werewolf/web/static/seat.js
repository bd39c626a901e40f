// A person's seat: its events and its question; the server sends nothing else.

import { Board } from "./board.js";
import { ask as load, h, listen, replace, send, store, stored, tidy } from "./dom.js";
import { fold, isSpeech } from "./fold.js";
import { playNow } from "./host.js";
import { Replay, announce, heard } from "./replay.js";
import { QUESTIONS, explain, isWolf, lineOf, markOf, proposal, say, spoken, words } from "./words.js";

const home = () => h("a", { class: "home", href: "/" }, say("回首页", "Home"));

export async function seatPage(main, secret) {
  const { guest } = await load(`/api/seat/${secret}`); // an invalid link is an error instead of endless reconnects
  const text = words(), key = `draft-${secret.slice(0, 8)}`;
  let board = null, asked = null, choice = null, until = null, shownEvents = -1;
  const identity = h("section", { class: "identity card" }), log = h("ol", { class: "log" }), question = h("section", { class: "ask", "aria-live": "polite" }), link = h("p", { class: "notice", hidden: true }), boardPlace = h("div", {});
  replace(main, link, h("div", { class: "seat-page" }, boardPlace, h("div", { class: "seat-side" }, identity, question, log)));

  const stop = listen(`/api/seat/${secret}/live`, show, async (state) => {
    link.hidden = state !== "away";
    link.textContent = text.connectionLost;
    if (state !== "away") return;
    const problem = await load(`/api/seat/${secret}`).then(() => null, (error) => error);
    if (problem?.status === 404) { stop(); replace(link, explain(problem), guest ? null : home()); } // the server was restarted
  });

  function show(data) {
    const { game, request } = data, role = game.roles[data.seat];
    if (role) {
      const wolf = isWolf(role);
      identity.className = `identity card ${wolf ? "wolf" : "good"}`;
      const mates = [...fold(game.events, game.events.length - 1, game.seats).roles].filter(([seat, other]) => seat !== data.seat && isWolf(other));
      replace(identity, h("span", { class: "seal", "aria-hidden": "true" }, say(markOf(role), text.roles[role][0])), h("div", {}, h("h1", {}, `${data.seat}${say("号", "")} · ${text.roles[role]}`), h("p", { class: "faint" }, text.sides[wolf ? "wolf" : "good"], mates.length && wolf ? ` · ${say("同伴", "with")} ${mates.map(([seat]) => `${seat}${say("号", "")}`).join(say("、", ", "))}` : ""), h("p", { class: "faint deck" }, say("牌堆：", "Deck: "), deck(data.deck))));
    } else replace(identity, h("h1", {}, `${data.seat}${say("号", "")}`));
    if (!board && game.seats) { board = new Board(game.seats, pick); replace(boardPlace, board.element); }
    const table = fold(game.events, game.events.length - 1, game.seats);
    for (const [seat, dealt] of Object.entries(data.roles)) table.roles.set(Number(seat), dealt);
    board?.draw(table, { you: data.seat, asked: request ? [{ seat: data.seat }] : [] });
    document.body.dataset.time = table.night ? "night" : "day";
    if (game.events.length !== shownEvents) {
      if (shownEvents >= 0) announce(game.events.slice(shownEvents).map(heard).join(" "));
      shownEvents = game.events.length;
      drawLog(game.events);
    }
    ask(data);
  }

  const deck = (roles) => [...new Set(roles)].map((role) => `${text.roles[role]}${roles.filter((other) => other === role).length > 1 ? `\u2060×${roles.filter((other) => other === role).length}` : ""}`).join(say("、", ", "));

  function drawLog(events) {
    let ballot = null;
    const top = log.scrollTop, atEnd = !log.children.length || log.scrollHeight - top - log.clientHeight < 40;
    replace(log, events.filter((event) => event.kind !== "game_start").map((event) => {
      if (event.kind === "vote" || event.kind === "sheriff_vote") {
        const chip = h("span", { class: "tag" }, h("b", {}, String(event.seat)), event.target ? ` → ${event.target}` : ` ${text.abstain}`);
        if (ballot) { ballot.append(chip); return null; }
        return (ballot = h("li", { class: "entry ballot" }, h("span", { class: "head" }, event.kind === "vote" ? text.decisions.exile_vote : text.decisions.sheriff_vote), chip));
      }
      ballot = null;
      if (event.kind === "night_falls" || event.kind === "day_breaks") return h("li", { class: "entry divider" }, h("div", { class: "line" }, event.kind === "night_falls" ? text.night(event.day) : text.day(event.day)));
      if (!isSpeech(event)) return h("li", { class: `entry ${event.secret ? "secret" : ""}` }, h("div", { class: "line", dir: "auto" }, lineOf(event)));
      const named = proposal(event);
      return h("li", { class: "entry" }, h("div", { class: "line" }, h("span", { class: "who" }, String(event.seat)), h("span", { class: "head" }, text.heads[event.kind], named ? ` · ${named}` : ""), h("p", {}, spoken(event))));
    }));
    requestAnimationFrame(() => { log.scrollTop = atEnd ? log.scrollHeight : top; }); // an earlier speech that is being read stays
  }

  function ask(data) {
    const { request } = data;
    if (data.phase !== "playing" || !request) question.dataset.question = "";
    if (data.phase !== "playing") {
      asked = null;
      question.classList.remove("mine");
      replace(question, data.phase === "waiting" ? [h("h2", {}, say("等其他人入座…", "Waiting for the others…"))] : data.phase === "failed" ? [h("h2", {}, text.failed), h("p", {}, tidy(data.problem)), h("div", { class: "choices" }, onwards(data.again))] : ending(data));
      return;
    }
    if (!request) {
      asked = null;
      until = null;
      question.classList.remove("mine");
      return replace(question, h("p", { class: "faint" }, say("现在不用你做什么", "No pending question")));
    }
    if (request.left !== null) until = performance.now() + request.left * 1000;
    else until = null;
    if (asked?.question === request.question) return; // keeps the text in progress
    asked = request;
    choice = null;
    question.classList.add("mine");
    question.dataset.question = request.question;
    const clock = h("span", { class: "clock", role: "timer" });
    const kept = stored(key, "sessionStorage");
    const draft = kept && JSON.parse(kept).question === request.question ? JSON.parse(kept).text : "";
    const counter = h("div", { class: "counter", "aria-live": "off" });
    const speech = request.speechChars ? h("textarea", { "aria-label": say("发言", "speech"), maxlength: 4000, placeholder: say(`要说的话，最多${request.speechChars}字；留空就是过`, `your speech, at most ${request.speechChars} characters; empty: pass`), oninput: count }) : null;
    if (speech) speech.value = draft;
    function count() {
      counter.textContent = `${[...speech.value].length} / ${request.speechChars}`;
      counter.classList.toggle("over", [...speech.value].length > request.speechChars);
      store(key, JSON.stringify({ question: request.question, text: speech.value }), "sessionStorage");
    }
    const buttons = h("div", { class: "choices", role: "group", "aria-label": say("选择", "choices") }, request.choices.map((entry, number) => h("button", { type: "button", "aria-pressed": "false", "data-choice": number, "data-value": entry.value, onclick: () => choose(number) }, choiceName(entry, request))),
      request.mayPass && !speech ? h("button", { type: "button", "aria-pressed": "false", "data-choice": "pass", onclick: () => choose("pass") }, say(request.passName, PASS[request.decision] ?? (request.decision.endsWith("_vote") ? "abstain" : "nobody"))) : null);
    const submit = h("button", { type: "button", class: "primary submit", disabled: !speech, onclick: () => answer(speech) }, say("确定", "Answer"));
    const problem = h("p", { class: "notice", hidden: true, role: "alert" });
    replace(question, h("h2", {}, text.decisions[request.decision] ?? request.decision, clock), h("p", {}, questionText(request)), speech, speech ? counter : null, request.choices.length || request.mayPass ? buttons : null, problem, h("div", {}, submit));
    if (speech) count();
    question.scrollIntoView({ block: "nearest" });
    (speech ?? buttons.querySelector("button"))?.focus({ preventScroll: true });
    tick();

    function choose(number) {
      choice = choice === number && speech ? null : number;
      for (const other of buttons.children) other.setAttribute("aria-pressed", String(String(choice) === other.dataset.choice));
      submit.disabled = choice === null && !speech;
    }
    asked.choose = choose;

    async function answer(words) {
      submit.disabled = true;
      try {
        await send(`/api/seat/${secret}/act`, { question: request.question, choice: choice === "pass" ? null : choice, text: words?.value ?? "" });
        store(key, null, "sessionStorage");
      } catch (error) {
        if (error.status === 409) return;
        replace(problem, explain(error));
        problem.hidden = false;
        submit.disabled = false;
      }
    }

    function tick() {
      if (asked?.question !== request.question) return;
      if (until === null) { clock.textContent = ""; return; }
      const left = Math.max(0, Math.ceil((until - performance.now()) / 1000));
      clock.textContent = say(`${left} 秒`, `${left} s`);
      clock.classList.toggle("soon", left <= 10);
      setTimeout(tick, 500);
    }
  }

  // The seat's result, and the next actions.
  function ending({ game: { result }, roles, seat, problem, again, replay }) {
    const role = text.roles[roles[seat]] ?? "", side = isWolf(roles[seat]) ? "wolf" : "good";
    question.dataset.outcome = result === "draw" ? "draw" : result === side ? "won" : "lost";
    const told = { draw: say(`平局，你是${role}`, `A draw; you were ${role}`), won: say(`你赢了！你是${role}`, `You won as ${role}`), lost: say(`你输了，你是${role}`, `You lost as ${role}`) };
    return [h("h2", { class: "outcome" }, told[question.dataset.outcome]), h("p", {}, text.results[result], say("。所有身份都在桌上翻开了。", ". All roles are revealed on the table.")), problem ? h("p", { class: "notice" }, tidy(problem)) : null,
      h("div", { class: "choices" }, replay ? h("button", { type: "button", class: "replay-all", onclick: watchAll }, say("看完整回放", "See the whole game")) : null, onwards(again))];
  }

  function onwards(again) {
    if (guest) return [];
    return [again.people === 1 ? h("button", { type: "button", class: "primary again", onclick: (event) => playNow(event.target, again) }, say("再来一局", "Play again")) : null, home()];
  }

  // A finished game has no secrets.
  async function watchAll() {
    const replay = new Replay({ id: "", view: "god", at: null, source: (view) => load(`/api/seat/${secret}/game`, { view }) });
    replace(main, guest ? null : h("p", {}, home()), replay.element);
    document.addEventListener("keydown", (event) => replay.key(event));
    try { await replay.load(); } catch (problem) { replace(main, h("p", { class: "notice" }, explain(problem)), guest ? null : home()); }
  }

  // A click on a seat of the table equals its button.
  function pick(seat) {
    const number = asked?.choices.findIndex((entry) => entry.value === seat) ?? -1;
    if (number >= 0) asked.choose(number);
  }

  const PASS = { sign_up: "do not run", withdrawal: "stay in", explosion: "do not explode", witch: "use nothing", badge: "tear it up", duel: "no duel" };
  const OPTIONS = { save: "save", run: "run for sheriff", withdraw: "withdraw", explode: "explode", sheriff_left: "up from my seat", sheriff_right: "down from my seat", dead_left: "up from the dead seat", dead_right: "down from the dead seat" };
  const SUBJECTS = { witch: (seat) => `${seat} was attacked tonight. `, explosion: (seat) => `${seat} is about to be elected sheriff. ` };
  const choiceName = (entry, request) => say(entry.name, typeof entry.value === "number" ? `${request.decision === "witch" ? "poison " : ""}${entry.value}` : OPTIONS[entry.value] ?? entry.name);
  const chineseQuestion = (request) => {
    const [asked, explained = ""] = tidy(request.text).split("。");
    return `${asked.split("，可选：")[0].replace(/^\d+号，/, "")}${request.decision === "speaking_order" ? `（${explained}）` : ""}`;
  };
  // The buttons replace the form of the answer, so only the text before it is shown.
  const questionText = (request) => say(chineseQuestion(request), `${request.subject ? SUBJECTS[request.decision]?.(request.subject) ?? "" : ""}${QUESTIONS[request.decision] ?? request.decision}`);
}
