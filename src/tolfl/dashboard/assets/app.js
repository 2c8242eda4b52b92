// The page: receives the lines, keeps the time, and lets every part show the moment.

import { Chart } from "./charts.js";
import { Topology } from "./fleet.js";
import { element } from "./format.js";
import * as panels from "./panels.js";
import { metricNames, Run } from "./run_state.js";
import { Player } from "./timeline.js";

const byId = (id) => document.getElementById(id);
const say = (words) => { byId("status").textContent = words; };
const STEPS = { ",": -1, ".": 1 };

const LEGEND = [
  ["in", "in the model"], ["out", "not in it"], ["apart", "in another model"], ["head", "head"], ["dead", "dead"], ["frozen", "frozen"],
  ["cut", "cut off or found dead"], ["back", "returned"], ["up", "report, mean"], ["down", "new model"],
];

class RunView {
  constructor(run, say) {
    this.run = run;
    this.say = say;
    this.selected = null;
    this.seen = 0;
    this.topology = new Topology(run, (id) => { this.selected = id; this.told = ""; this.show(this.seconds, this.isLive); });
    this.buttons = run.hasControls ? new panels.Buttons(say) : null;
    this.facts = element("div");
    this.title = element("h3", { class: `name run-${run.index % 6}` }, run.name);
    this.headline = element("p", { class: "headline" });
    this.stages = element("div");
    this.body = element("div", { class: "fleet-body" });
    this.detailsTitle = element("h3", { class: `name run-${run.index % 6}` }, run.name);
    this.device = element("div", { class: "device", "aria-live": "off" });
    this.deviceTitle = element("h4", {}, "No device chosen");
    this.deviceText = element("p", {}, "Choose a device in the picture.");
    this.device.append(this.deviceTitle, this.deviceText, ...(this.buttons ? [this.buttons.box] : []));
    const swatches = LEGEND.map(([name, words]) => element("li", {}, element("i", { class: `swatch ${name}`, "aria-hidden": "true" }), words));
    this.fleet = element("section", { class: "card fleet-card", "aria-label": `Fleet of ${run.name}` },
      this.title, this.headline, this.stages, this.body);
    this.body.append(
      element("div", {}, this.topology.box, element("ul", { class: "legend" }, ...swatches)),
      element("div", { class: "beside" }, this.facts, this.device));
    this.buildDetails();
  }

  buildDetails() {
    const { run } = this;
    const part = (title, ...content) => element("div", { class: "part" }, element("h4", {}, title), ...content);
    [this.inside, this.failures, this.traffic] = [element("div"), element("div"), element("div")];
    this.alarms = element("div");
    this.alarmsPart = part("Alarms", this.alarms);
    this.log = element("ol");
    const log = element("div", { class: "log", tabindex: 0, role: "region", "aria-label": `What happened in ${run.name}` }, this.log);
    this.withRounds = element("input", { type: "checkbox", onchange: () => { this.told = ""; this.show(this.seconds, this.isLive); } });
    this.details = element("section", { class: "card", "aria-label": `Details of ${run.name}` },
      this.detailsTitle,
      element("div", { class: "parts" },
        part("Whose samples are in the model", this.inside),
        part("Failures", this.failures),
        this.alarmsPart,
        part("Messages and bytes", this.traffic),
        part("What happened", element("label", {}, this.withRounds, " rounds and scores too"), log)));
  }

  /** Show a moment; messages fly when time moves on by itself. */
  show(seconds, isLive, isMoving = false) {
    Object.assign(this, { seconds, isLive });
    const count = this.run.countAt(seconds);
    const state = this.run.at(seconds);
    if (isMoving && count > this.seen) this.tell(this.run.ordered.slice(Math.max(this.seen, count - 600), count));
    this.seen = count;
    this.topology.show(state, this.selected);
    this.showDevice(state);
    const quietS = isLive ? this.run.quietS : 0;
    this.alarmsNow = isLive ? this.run.alarmsNow : null; // at other moments the records tell, of those who wrote them
    const told = `${count} ${this.run.news} ${quietS} ${this.alarmsNow?.number}`;
    if (told === this.told) return state;
    this.told = told;
    this.body.hidden = this.details.hidden = !state.started; // before the first message there is nothing to tell
    this.title.textContent = this.detailsTitle.textContent = titleOf(this.run);
    this.headline.textContent = panels.headline(state, quietS, this.alarmsNow);
    this.stages.replaceChildren(...panels.stages(state));
    this.facts.replaceChildren(panels.facts(state));
    this.inside.replaceChildren(panels.inside(state));
    this.failures.replaceChildren(panels.failures(this.run, state));
    this.alarmsPart.hidden = !state.alarms.length && !this.alarmsNow;
    if (this.alarmsNow) this.tick();
    else this.alarms.replaceChildren(panels.alarms(state));
    this.traffic.replaceChildren(panels.traffic(state));
    this.log.replaceChildren(...panels.log(this.run, state, count, this.withRounds.checked));
    return state;
  }

  /** Update the ages of alarms; scroll position and focus of the table are kept. */
  tick() {
    const fresh = this.alarmsNow ? panels.alarmsNow(this.alarmsNow) : null;
    if (!fresh || fresh.textContent === this.alarms.textContent) return;
    const before = this.alarms.querySelector(".scroll");
    const [left, top, hadFocus] = [before?.scrollLeft ?? 0, before?.scrollTop ?? 0, before && before === document.activeElement];
    this.alarms.replaceChildren(fresh);
    const after = this.alarms.querySelector(".scroll");
    after?.scrollTo(left, top);
    if (hadFocus) after?.focus();
  }

  /** What just came: messages fly, and the latest good or bad event goes to screen readers. */
  tell(news) {
    this.topology.fly(news);
    const said = news.findLast((one) => ["good", "bad"].includes(one.tone));
    if (this.isLive && said) this.say(said.text);
  }

  showDevice(state) {
    const device = state.devices.get(this.selected);
    if (this.buttons) this.buttons.box.hidden = !device;
    if (!device) return;
    this.deviceTitle.textContent = `Device ${device.id}`;
    this.deviceText.textContent = panels.deviceWords(device);
    this.buttons?.show(device, this.isLive);
  }
}

class Page {
  constructor({ runs, follow }) {
    this.runs = runs.map((run, index) => new Run(index, run.name, run.controls));
    this.views = this.runs.map((run) => new RunView(run, say));
    byId("fleets").append(...this.views.map((view) => view.fleet));
    byId("details").append(...this.views.map((view) => view.details));
    document.body.classList.toggle("many", runs.length > 1);
    this.charts = [
      new Chart(byId("loss"), "Training loss", this.runs, { main: (s) => s.rounds, others: (s) => s.others, y: (round) => round.loss, span: 0.1 }),
      new Chart(byId("auroc"), "AUROC", this.runs, { main: (s) => s.mainEvaluations, others: (s) => s.otherEvaluations, y: (one) => one.auroc, span: 0.04 }),
    ];
    this.player = new Player((isMoving) => this.later(isMoving));
    this.player.canFollow = this.player.isLive = follow;
    byId("axis").addEventListener("change", () => this.restyle());
    document.addEventListener("keydown", (event) => this.key(event));
    this.restyle();
    this.listen(follow);
    setInterval(() => this.views.forEach((view) => view.tick()), 1000);
  }

  listen(follow) {
    const source = new EventSource("/api/lines");
    source.addEventListener("lines", (event) => {
      const { run, from, lines } = JSON.parse(event.data);
      this.runs[run].add(from, lines);
      this.player.reach(Math.max(...this.runs.map((one) => one.durationS)));
      this.later(this.player.isLive && this.isComplete);
      if (this.isIdle) say(this.words(follow));
    });
    source.addEventListener("failures", (event) => {
      const { run, history } = JSON.parse(event.data);
      this.runs[run].setFailures(history);
      this.later(this.player.isLive && this.isComplete);
    });
    source.addEventListener("alarms", (event) => {
      this.runs[0].setAlarms(JSON.parse(event.data));
      this.later(false);
    });
    source.addEventListener("state", (event) => {
      JSON.parse(event.data).forEach(({ over, unreadable, problem, source, clock, quiet_s }, i) => Object.assign(this.runs[i], { isOver: over, unreadable, problem, source, clock, quietS: quiet_s }));
      this.isComplete = true;
      this.later(false);
      say(this.words(follow));
    });
    source.addEventListener("end", () => {
      source.close();
      this.player.stopFollowing();
      this.player.chooseSpeed();
      document.body.dataset.ended = "true";
      say(this.words(false));
    });
    source.onerror = () => say(follow ? "the connection is lost; trying again" : "the connection is lost");
  }

  words(isFollowing) {
    const problem = this.runs.find((run) => run.problem)?.problem;
    if (problem) return problem;
    this.isIdle = this.runs.every((run) => !run.lines.length);
    if (this.isIdle) return isFollowing ? "waiting for the first line" : "there is no line";
    const bad = this.runs.reduce((sum, run) => sum + run.unreadable, 0);
    const unread = bad ? `; ${bad} lines could not be read` : "";
    const source = this.runs[0].source && !this.runs[0].isOver ? `, ${this.runs[0].source}` : "";
    const clocks = [...new Set(this.runs.map((run) => run.clock))].filter(Boolean).map((clock) => `, ${clock}`).join("");
    return `${isFollowing ? "live" : "recorded"}${source}${clocks}${unread}`;
  }

  /** Draw once per frame, however many lines came. */
  later(isMoving) {
    this.isMoving ||= isMoving;
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.show();
      this.isMoving = false;
    });
  }

  show() {
    const { nowS, isLive } = this.player;
    const states = this.views.map((view) => view.show(nowS, isLive, this.isMoving));
    states.forEach((state, i) => { state.told = `${this.runs[i].news}/${this.runs[i].countAt(nowS)}`; });
    const axis = byId("axis").value;
    const maxX = axis === "seconds" ? this.player.endS : Math.max(1, ...this.runs.map(roundsOf));
    const hasScores = states.some((state) => state.evaluations.length);
    byId("loss").parentElement.hidden = !states.some(panels.hasLoss);
    byId("auroc").parentElement.hidden = !hasScores;
    for (const name of states.flatMap(metricNames)) this.addMetric(name);
    byId("charts").hidden = byId("loss").parentElement.hidden && !hasScores && this.charts.length === 2;
    document.title = `${this.runs.map(titleOf).join(", ")} · tolfl`;
    for (const chart of this.charts) chart.show(states, maxX);
    byId("marks").textContent = [
      states.some((state) => state.incidents.length) ? "Dashed: a failure. " : "",
      states.some((state) => state.branches.length) ? "Dots: other branches, in the mean." : "",
    ].join("");
  }

  /** Draw a metric of a learner, once a round has it. */
  addMetric(name) {
    if (this.charts.some((chart) => chart.title === name)) return;
    const place = element("div", { role: "img", "aria-label": name });
    byId("loss").parentElement.parentElement.append(element("figure", { class: "metric" }, element("figcaption", {}, name), place));
    const chart = new Chart(place, name, this.runs, { main: (s) => s.rounds, others: (s) => s.others, y: (one) => one.metrics?.[name] ?? null, span: 0.1 });
    chart.build(byId("axis").value);
    this.charts.push(chart);
  }

  restyle() {
    for (const chart of this.charts) chart.build(byId("axis").value);
    this.later(false);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, .log, .scroll")) return;
    if (event.key === " " && event.target.closest("button, [role=button]")) return;
    const { player } = this;
    if (event.key === " ") player.toggle();
    else if (event.key in STEPS) player.moveTo(this.neighbour(STEPS[event.key]));
    else if (event.key === "Home") player.moveTo(0);
    else if (event.key === "End") player.moveTo(player.endS);
    else if (event.key.toLowerCase() === "l" && player.canFollow) player.follow();
    else return;
    event.preventDefault();
  }

  /** The moment at which the round before or after this one closed. */
  neighbour(step) {
    const now = this.player.nowS;
    const moments = this.runs.flatMap((run) => run.ordered.filter((line) => line.kind === "round_closed")
      .map((line) => line.time_s - run.startS)).sort((a, b) => a - b);
    const found = step > 0 ? moments.find((one) => one > now + 1e-6) : moments.findLast((one) => one < now - 1e-6);
    return found ?? (step > 0 ? this.player.endS : 0);
  }
}

/** The title of a run from its first record; the name of its folder until then. */
function titleOf(run) {
  const { started } = run;
  return started ? `${started.scheme} on ${started.data} (${run.name})` : run.name;
}

function roundsOf(run) {
  let most = 1;
  for (const line of run.lines) if (line.kind === "round_closed") most = Math.max(most, line.round + 1);
  return most;
}

const THEMES = ["auto", "light", "dark"];

function wearTheme(name) {
  const chosen = THEMES.includes(name) ? name : "auto";
  document.documentElement.dataset.theme = chosen;
  byId("theme").textContent = `Theme: ${chosen}`;
  return chosen;
}

async function begin() {
  let theme = wearTheme(localStorage.getItem("tolfl-theme"));
  const answer = await fetch("/api/runs");
  const page = new Page(await answer.json());
  byId("theme").addEventListener("click", () => {
    theme = wearTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
    localStorage.setItem("tolfl-theme", theme);
    page.restyle();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.restyle());
}

begin().catch((error) => say(`the page could not start: ${error.message}`));
