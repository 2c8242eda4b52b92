// Tables and texts beside the pictures: whose samples are in, what each failure cost, bytes, and the log.

import { age, bytes, element, number, ranges, seconds, statusOf } from "./format.js";
import { costOf, metricNames } from "./run_state.js";

const LOG_LINES = 250;
const ACCOUNTS = { unicast: "each message", broadcast: "model sent once for all", per_cluster: "model once per cluster", hops: "heads only hop", paper: "as in the paper" };

const fact = (name, ...value) => element("div", {}, element("dt", {}, name), element("dd", {}, ...value));

/** One sentence: how many devices train, or the time without a new round, and the last failure as far as it is known. */
export function headline(state, quietS, alarmsNow) {
  if (!state.started) return "Waiting for the first message of the fleet.";
  const living = [...state.devices.values()].filter((one) => one.status === "alive").length;
  const doing = state.ended ? "are left" : quietS ? `are there, but nothing is new for ${quietS} s` : "train";
  const count = `${living} of ${state.devices.size} devices ${doing}`;
  const last = state.incidents.at(-1);
  const told = last ? last.headline.findLast(([, knownS]) => knownS <= state.untilS)[0] : "no failure so far";
  const open = new Set(alarmsNow
    ? alarmsNow.devices.filter((one) => one.alarms.some(({ event }) => event !== "close")).map((one) => one.device)
    : state.alarms.filter((one) => one.isOpen).map(({ line }) => line.device));
  const alarms = open.size ? `alarm on device ${ranges(open)}; ` : "";
  return `${alarms}${count}; ${told}.`;
}

/** The numbers beside the picture. */
export function facts(state) {
  const { current, started } = state;
  const living = [...state.devices.values()].filter((one) => one.status === "alive").length;
  const lastAuroc = state.scores?.auroc ?? state.mainEvaluations.at(-1)?.auroc;
  const list = element("dl", { class: "facts" },
    fact("Scheme", started ? `${started.scheme} on ${started.data}` : "–"),
    fact("Rounds done", current?.far ?? "none"),
    fact(state.ended ? "Devices left" : "Training now", `${living} of ${state.devices.size}`),
    ...(hasLoss(state) ? [fact("Loss", number(current?.loss))] : []),
    ...(lastAuroc == null ? [] : [fact("AUROC", number(lastAuroc, 3))]),
    ...metricNames(state).map((name) => fact(name, number(state.rounds.findLast((one) => name in (one.metrics ?? {}))?.metrics[name]))),
    fact("Stalled by failures", seconds(state.stallS)));
  if (state.ended) list.append(fact("Ended", state.ended.reason));
  return list;
}

/** A detector from statistics has rounds without a loss, as has a run before its first: nothing is shown in its place. */
export const hasLoss = (state) => state.all.some((one) => (one.loss ?? null) !== null);

const N_STAGES = 8; // more of them, as those that take turns, are a fact beside the picture only

/** What the fleet has computed, computes and will compute, where its learner has stages. */
export function stages({ started, current, ended }) {
  const all = started?.stages ?? [];
  if (all.length < 2 || all.length > N_STAGES) return [];
  const done = current ? current.round + 1 : 0;
  let before = 0;
  const items = all.map(([name, rounds]) => {
    const inside = Math.min(Math.max(done - before, 0), rounds);
    const isNow = !ended && inside < rounds && done >= before;
    before += rounds;
    return element("li", { class: inside === rounds ? "done" : isNow ? "now" : "next", ...(isNow ? { "aria-current": "step" } : {}) }, `${name} ${inside}/${rounds}`);
  });
  return [element("ol", { class: "stages", "aria-label": "Stages of the learning" }, ...items)];
}

/** Whose samples are in the current model. */
export function inside(state) {
  const { current } = state;
  if (!current) return element("p", {}, "No round is closed yet.");
  const all = state.devices.size;
  const words = `${current.included.length} of ${all} devices are in the model of round ${current.round}, with ${number(current.n_samples, 12)} samples.`;
  const parts = [element("p", {}, words), element("meter", { min: 0, max: all, value: current.included.length, "aria-label": "Devices in the model" })];
  const byReason = Map.groupBy(Object.entries(current.missing), ([, why]) => why);
  const known = new Set([...current.included, ...Object.keys(current.missing).map(Number)]);
  const outside = [...state.devices.keys()].filter((id) => !known.has(id) && !state.devices.get(id).isApart);
  const rows = [...byReason].map(([why, entries]) => [why, entries.map(([id]) => Number(id))]);
  rows.push(...Map.groupBy(outside, (id) => outsideWord(state.devices.get(id))));
  if (rows.length) parts.push(element("ul", {}, ...rows.map(([why, ids]) => element("li", {}, `${why}: device ${ranges(ids)}`))));
  if (state.branches.length) parts.push(branches(state));
  const groups = Object.entries(current.groups ?? {});
  if (groups.length) parts.push(element("ul", {}, ...groups.map(([name, ids]) => element("li", {}, `model ${name}: device ${ranges(ids)}`))));
  return element("div", {}, ...parts);
}

/** Parts of the fleet that train models of their own: behind a cut, or alone because their server is gone. */
function branches(state) {
  const alone = state.branches.filter((one) => one.devices.length === 1).map((one) => one.devices[0]);
  const more = state.branches.filter((one) => one.devices.length > 1).map((one) => `a model of its own: device ${ranges(one.devices)}`);
  if (alone.length) more.push(`each with a model of its own: device ${ranges(alone)}`);
  return element("ul", {}, ...more.map((words) => element("li", {}, words)));
}

const outsideWord = (device) => (device.status === "alive" ? "not in this round" : statusOf(device));

function table(head, rows, empty) {
  if (!rows.length) return element("p", { class: "note" }, empty);
  const cells = (row, tag) => row.map((one) => element(tag, tag === "th" ? { scope: "col" } : {}, one));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" },
    element("table", {}, element("thead", {}, element("tr", {}, ...cells(head, "th"))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row, "td"))))));
}

/** What each failure cost, in the words of the report; what was not known at the moment is left out. */
export function failures(run, state) {
  const rows = state.incidents.map((one) => one.cells.map(([text, knownS]) => (knownS <= state.untilS ? text : "–")));
  return table(run.history.columns, rows.reverse(), state.started ? "Nothing has failed so far." : "Nothing is known yet.");
}

const N_ALARMS = 50;

/** Groups of alarms of the devices that watch, the newest first. */
export function alarms(state) {
  const rows = state.alarms.toReversed().slice(0, N_ALARMS).map(({ line, isOpen }) => [
    String(line.device), isOpen ? "open" : "over", line.severity, seconds(line.time_s), line.what,
  ]);
  return table(["device", "", "severity", "at", "what"], rows, "No alarm so far.");
}

/** The last groups of every device from its own status, the age of its answer, and the devices that do not answer. */
export function alarmsNow({ devices, aheadS }) {
  const nowS = Date.now() / 1000 - aheadS;
  const ago = (unixS) => `${age(nowS - unixS)} ago`;
  const rows = devices.flatMap(({ device, alarms, heard_unix_s: heardS, is_silent: isSilent }) => alarms.map((one) => ({ ...one, device, heardS, isSilent })))
    .sort((one, other) => other.unix_s - one.unix_s).slice(0, N_ALARMS)
    .map((one) => [String(one.device), one.event === "close" ? "over" : "open", one.severity, ago(one.unix_s), one.what,
      one.isSilent ? ago(one.heardS) : "now"]);
  const those = (words, isMeant) => {
    const ids = devices.filter(isMeant).map((one) => one.device);
    return ids.length ? [element("li", {}, `${words}: device ${ranges(ids)}`)] : [];
  };
  return element("div", {}, table(["device", "", "severity", "sent", "what", "last answer"], rows, "No alarm so far."),
    element("ul", {},
      ...those("does not answer, its alarms are not known", (one) => one.heard_unix_s === null),
      ...those("does not answer any more", (one) => one.heard_unix_s !== null && one.is_silent),
      ...those("no alarm", (one) => one.heard_unix_s !== null && !one.is_silent && !one.alarms.length)));
}

/** Bytes on the wire beside the ways to count messages. */
export function traffic(state) {
  const { current, started } = state;
  if (!current) return element("p", { class: "note" }, "No message so far.");
  const last = state.rounds.findLast((one) => costOf(one, state).messages.unicast > 0) ?? current;
  const cost = costOf(last, state);
  const totals = { bytes: 0, messages: {} };
  let isCounted = true;
  for (const round of state.all) {
    const one = costOf(round, state);
    totals.bytes += one.bytes;
    isCounted &&= one.isCounted;
    for (const [name, n] of Object.entries(one.messages)) totals.messages[name] = (totals.messages[name] ?? 0) + n;
  }
  const size = started?.model_bytes ?? 0;
  const rows = Object.entries(ACCOUNTS).filter(([name]) => name in cost.messages).map(([name, meaning]) => [
    `${name} (${meaning})`, number(cost.messages[name], 9), bytes(cost.messages[name] * size),
    isCounted || name === "unicast" ? number(totals.messages[name], 12) : "–",
  ]);
  const expected = (totals.messages.unicast ?? 0) * size;
  const ratio = expected ? `, ${((100 * totals.bytes) / expected).toFixed(1)} % of messages × model size` : "";
  const control = state.control.messages ? ` Small messages besides: ${number(state.control.messages, 9)}, ${bytes(state.control.bytes)}.` : "";
  const waits = isCounted || state.ended ? "" : " The other ways to count come when the run is over.";
  const isPart = !isCounted && state.senders.size < state.devices.size;
  const whose = isPart ? `As far as the records of device ${ranges(state.senders)} have it: round` : "Round";
  return element("div", {},
    element("p", {}, `${whose} ${last.round} moved ${bytes(cost.bytes)} of models; the run ${bytes(totals.bytes)}${ratio}.${control}${waits}`),
    table(["way to count", "messages, round", "as bytes", "messages, run"], rows, "No message so far."));
}

/** What happened, the latest first. */
export function log(run, state, count, withRounds) {
  const items = [];
  const inferred = state.incidents.filter((one) => one.is_inferred);
  const tellBefore = (timeS) => {
    while (inferred.length && inferred.at(-1).time_s >= timeS) items.push(entry("bad", inferred.at(-1).time_s, inferred.pop().headline[0][0]));
  };
  for (let i = count - 1; i >= 0 && items.length < LOG_LINES; i -= 1) {
    const line = run.ordered[i];
    if (!line.text || (line.tone === "quiet" && !withRounds)) continue;
    tellBefore(line.time_s);
    items.push(entry(line.tone, line.time_s, line.text));
  }
  return items;
}

const entry = (tone, timeS, words) => element("li", { class: tone }, element("span", { class: "when" }, seconds(timeS)), ` ${words}`);

/** The device that was clicked. */
export function deviceWords(device) {
  const role = device.isHead ? "head" : "member";
  const missing = device.missing ? ` (${device.missing})` : "";
  const inModel = device.isIn ? "its samples are in the current model"
    : device.isApart ? "it trains another model" : `its samples are not in the current model${missing}`;
  return `${role} of cluster ${device.cluster}, ${statusOf(device)}; ${inModel}.`;
}

// -- the buttons that kill or freeze a device of a fleet on this machine; they need the token from the terminal ---

const KEY = "tolfl-token";
const ACTIONS = [
  ["kill", "Kill", (device, isUp) => isUp],
  ["freeze", "Freeze", (device, isUp) => isUp && device.status !== "frozen"],
  ["thaw", "Thaw", (device) => device.status === "frozen"],
  ["cut", "Cut off", (device, isUp) => isUp && !["frozen", "cut"].includes(device.status)],
  ["heal", "End cut", (device) => device.status === "cut"],
  ["revive", "Revive", (device, isUp) => !isUp],
];

/** Take the token out of the address, so that it is neither bookmarked nor shown. */
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY);
}

export class Buttons {
  constructor(say) {
    this.say = say;
    this.token = takeToken();
    this.box = element("div", { class: "actions" });
    this.buttons = ACTIONS.map(([action, words]) => element("button", { type: "button", "data-action": action, onclick: () => this.send(action) }, words));
    this.hint = element("p", { class: "note" });
    this.box.append(...this.buttons, this.hint);
  }

  show(device, isLive) {
    this.device = device;
    const isUp = device.status !== "dead";
    this.hint.textContent = !this.token ? "To kill devices here, open the address with the token that the terminal shows."
      : isLive ? "" : "Go to Live to strike a device.";
    ACTIONS.forEach(([, , isMeant], i) => {
      this.buttons[i].hidden = !this.token || !isMeant(device, isUp);
      this.buttons[i].disabled = !isLive || this.isBusy;
    });
  }

  async send(action) {
    this.isBusy = true;
    const device = this.device.id;
    this.say(`${action} device ${device} …`);
    try {
      const answer = await fetch("/api/command", {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Tolfl-Token": this.token },
        body: JSON.stringify({ action, device }),
      });
      const told = await answer.json();
      this.say(answer.ok ? `device ${device}: ${action} done` : told.error);
    } catch {
      this.say("the run's program does not answer");
    }
    this.isBusy = false;
  }
}
