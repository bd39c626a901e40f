// Routes to pages, and the common header.

import { h, icon, replace, store, stored } from "./dom.js";
import { comparePage } from "./compare.js";
import { homePage, runsPage } from "./home.js";
import { hostPage, newTablePage } from "./host.js";
import { Replay } from "./replay.js";
import { runPage } from "./run.js";
import { seatPage } from "./seat.js";
import { explain, lang, say, switchLanguage, words } from "./words.js";

const main = document.getElementById("main");
const query = new URLSearchParams(location.search);
const theme = stored("theme");
if (theme) document.documentElement.dataset.theme = theme;

function header() {
  const text = words(), here = location.pathname, atSeat = here.startsWith("/seat/");
  const link = (address, name) => h("a", { href: address, "aria-current": here === address || (address !== "/" && here.startsWith(address)) ? "page" : null }, name);
  document.title = text.title;
  replace(document.getElementById("top"),
    h("a", { class: "brand", href: atSeat ? null : "/" }, h("img", { src: "/static/icon.svg", alt: "", width: 28, height: 28 }), text.title),
    atSeat ? h("nav", {}) : h("nav", { "aria-label": say("主导航", "Main") }, link("/", text.games), link("/runs", text.runs), link("/play", text.play)),
    h("div", { class: "top-tools" },
      h("button", { type: "button", class: "key", "aria-label": text.theme, title: text.theme, onclick: switchTheme }, icon("theme")),
      h("button", { type: "button", class: "key", lang: lang() === "zh" ? "en" : "zh", onclick: switchLanguage }, text.language)));
}

function switchTheme() {
  const light = (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark")) === "light";
  document.documentElement.dataset.theme = light ? "dark" : "light";
  store("theme", document.documentElement.dataset.theme);
}

async function gamePage() {
  const at = query.get("at");
  let resting = null;
  const replay = new Replay({
    id: query.get("id") ?? "", view: query.get("view") ?? "god", at: at === null ? null : Number(at),
    onMove: (moved) => { // browsers limit how often an address changes: Safari to 100 times in 30 s
      clearTimeout(resting);
      resting = setTimeout(() => history.replaceState(null, "", moved.link(!moved.following)), 400);
    },
  });
  replace(main, replay.element);
  document.addEventListener("keydown", (event) => replay.key(event));
  await replay.load();
  replay.element.append(h("p", { class: "hint" }, words().help));
}

// The server returns this page for these routes: `_PAGES` of app.py.
const pages = [
  [/^\/$/, () => homePage(main, query)], [/^\/game$/, gamePage], [/^\/compare$/, () => comparePage(main, query)], [/^\/runs$/, () => runsPage(main)],
  [/^\/run\/(.+)$/, (found) => runPage(main, decodeURIComponent(found[1]))], [/^\/play$/, () => newTablePage(main)],
  [/^\/table\/(.+)$/, (found) => hostPage(main, found[1])], [/^\/seat\/(.+)$/, (found) => seatPage(main, found[1])],
];

function problemPage(title, ...told) {
  replace(main, h("section", { class: "card problem" }, h("h1", {}, title), h("p", {}, told), h("p", {}, h("a", { href: "/" }, say("← 回首页", "← Home")))));
}

header();
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
try {
  const [found, page] = pages.map(([form, page]) => [form.exec(location.pathname), page]).find(([found]) => found) ?? [];
  if (page) await page(found);
  else problemPage(say("没有这一页", "No such page"), say("这个地址什么也没有。", "Page not found."));
} catch (problem) {
  problemPage(words().failed, explain(problem));
  if (!problem.path) throw problem; // a bug of the page
}
const heading = location.pathname === "/" ? null : main.querySelector("h1");
if (heading) document.title = `${heading.textContent} · ${words().title}`;
document.body.dataset.ready = "yes";
