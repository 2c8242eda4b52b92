// What the pictures cannot say: whose samples are in, what each failure cost, bytes, and the log.

import { costOf, stageOf } from "./story.js";
import { bytes, cutWords, element, number, ranges, seconds, sentenceFor, statusOf } from "./words.js";

const LOG_LINES = 250;
const ACCOUNTS = { unicast: "each message", broadcast: "model sent once for all", per_cluster: "model once per cluster", hops: "heads only hop", paper: "as in the paper" };

const fact = (name, ...value) => element("div", {}, element("dt", {}, name), element("dd", {}, ...value));

/** The numbers beside the picture. */
export function facts(run, state) {
  const { current, started } = state;
  const living = [...state.devices.values()].filter((one) => one.status === "alive").length;
  const lastAuroc = state.scores?.auroc ?? state.mainEvaluations.at(-1)?.auroc;
  const list = element("dl", { class: "facts" },
    fact("Scheme", started ? `${started.scheme} on ${started.data}` : "–"),
    ...(started?.stages?.length ? [fact("Stage", current ? stageWords(started, current.round) : started.stages[0][0])] : []),
    fact("Rounds done", `${current ? current.round + 1 : 0}${roundsIn(started)}`),
    fact("Training now", `${living} of ${state.devices.size}`),
    ...(hasLoss(state) ? [fact("Loss", number(current?.loss))] : []),
    fact("AUROC", number(lastAuroc, 3)),
    fact("Stalled in all", seconds(state.rounds.reduce((sum, one) => sum + one.stall_s, 0))));
  if (state.ended) list.append(fact("Ended", state.ended.reason));
  return list;
}

/** A detector from statistics has rounds without a loss: nothing is shown in its place. */
export const hasLoss = (state) => !state.all.length || state.all.some((one) => one.loss !== null && one.loss !== undefined);

/** "thresholds 2/6", counted from 1 like all rounds of the page; nothing where there are no stages. */
function stageWords(started, round) {
  const stage = stageOf(started, round);
  return stage ? `${stage.name} ${stage.round + 1}/${stage.rounds}` : "";
}

function roundsIn(started) {
  const rounds = (started?.stages ?? []).reduce((sum, [, n]) => sum + n, 0);
  return rounds ? ` of ${rounds}` : "";
}

function roundWords(started, round) {
  const stage = stageWords(started, round);
  return stage ? `${round + 1} (${stage})` : `${round + 1}`;
}

/** Whose samples are in the current model. */
export function inside(state) {
  const { current } = state;
  if (!current) return element("p", {}, "No round is closed yet.");
  const all = state.devices.size;
  const words = `${current.included.length} of ${all} devices are in the model of round ${current.round + 1}, with ${number(current.n_samples, 12)} samples.`;
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

/** What each failure cost. */
export function failures(state) {
  // A whole cluster that dies at once is one row.
  const together = Map.groupBy(state.incidents, ({ line }) => `${line.time_s} ${line.round} ${line.what}`);
  const rows = [...together.values()].map((group) => {
    const { line, atS, round, stallS } = group[0];
    const noticed = group.map((one) => one.detectedS).filter((one) => one !== null);
    const heirs = group.map((one) => one.tookOver).filter((one) => one !== null);
    return [
      seconds(atS), line.device === null ? cutWords(line.what) : `device ${ranges(group.map((one) => one.line.device))} ${line.what}`,
      round === null ? "–" : roundWords(state.started, round), seconds(noticed.length ? Math.min(...noticed) : null),
      heirs.length ? `device ${ranges(heirs)}` : "–", seconds(stallS),
    ];
  });
  return table(["at", "what", "in round", "noticed after", "taken over by", "round stalled"], rows.reverse(), "Nothing has failed so far.");
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
  const waits = isCounted ? "" : " The other ways to count come when the run is over.";
  return element("div", {},
    element("p", {}, `Round ${last.round + 1} moved ${bytes(cost.bytes)} of models; the run ${bytes(totals.bytes)}${ratio}.${control}${waits}`),
    table(["way to count", "messages, round", "as bytes", "messages, run"], rows, "No message so far."));
}

/** What happened, the latest first. */
export function log(run, count, withRounds) {
  const items = [];
  for (let i = count - 1; i >= 0 && items.length < LOG_LINES; i -= 1) {
    const line = run.ordered[i];
    const said = sentenceFor(line);
    if (!said || (said.mood === "quiet" && !withRounds)) continue;
    items.push(element("li", { class: said.mood }, element("span", { class: "when" }, seconds(line.time_s - run.startS)), ` ${said.text}`));
  }
  return items;
}

/** The device that was clicked. */
export function deviceWords(device) {
  const role = device.isHead ? "head" : "member";
  const missing = device.missing ? ` (${device.missing})` : "";
  const inModel = device.isIn ? "its samples are in the current model"
    : device.isApart ? "it trains another model" : `its samples are not in the current model${missing}`;
  return `${role} of cluster ${device.cluster}, ${statusOf(device)}; ${inModel}.`;
}
