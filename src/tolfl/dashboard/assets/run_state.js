// The state of a run at a moment, from its lines. Nothing here draws, so that replay and live are one thing.

/** Versions are ordered: more work first, then rounds, then revisions, then the name. */
export function versionOf(text) {
  const [work, round, revision, history] = String(text).split(".");
  return { work: Number(work), round: Number(round), revision: Number(revision), history };
}

export function isHeavier(one, other) {
  for (const key of ["work", "round", "revision"]) if (one[key] !== other[key]) return one[key] > other[key];
  return one.history > other.history;
}

export class Run {
  constructor(index, name, hasControls) {
    Object.assign(this, { index, name, hasControls, lines: [], isOver: false, unreadable: 0, problem: "", quietS: 0 });
    this.alarmsNow = null; // what the devices of a fleet elsewhere say of their alarms, where they are asked
    this.history = { columns: [], incidents: [] };
    this.news = 0; // how often something came: whoever draws it compares
    this._forget();
  }

  _forget() {
    this.news += 1;
    this._ordered = null;
    this._states = new Map();
  }

  /** Take lines in; `from` is the place of the first, so that a line that comes twice counts once. */
  add(from, lines) {
    this.lines.length = Math.min(from, this.lines.length);
    for (const line of lines) this.lines.push(line);
    this._forget();
  }

  /** The alarms of every device, from its status; times are those of the server, whose clock may differ. */
  setAlarms({ now, devices }) {
    this.alarmsNow = devices.length ? { devices, aheadS: Date.now() / 1000 - now, number: (this.alarmsNow?.number ?? 0) + 1 } : null;
  }

  /** The history of failures, the same as in reports. */
  setFailures(history) {
    this.history = history;
    this._forget();
  }

  /** Lines in the order of time; a round whose messages were counted later stands at its own moment. */
  get ordered() {
    if (this._ordered) return this._ordered;
    const counted = new Map();
    for (const line of this.lines) if (line.kind === "round_closed") counted.set(line.version, line);
    const once = new Set();
    const kept = this.lines.filter((line) => {
      if (line.kind !== "round_closed") return true;
      if (once.has(line.version)) return false;
      once.add(line.version);
      return true;
    });
    this._ordered = kept
      .map((line) => (line.kind === "round_closed" ? counted.get(line.version) : line))
      .sort((one, other) => one.time_s - other.time_s);
    return this._ordered;
  }

  get startS() { return Math.min(0, this.ordered[0]?.time_s ?? 0); } // the clock of the records
  get durationS() { return this.ordered.length ? this.ordered.at(-1).time_s - this.startS : 0; }
  get started() { return this.ordered.find((line) => line.kind === "run_started") ?? null; }
  get hasTraffic() { return this.lines.some((line) => line.kind === "traffic"); }

  /** How many lines there are up to a moment (seconds since the run began). */
  countAt(seconds) {
    const until = this.startS + seconds + 1e-9;
    let low = 0, high = this.ordered.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ordered[middle].time_s <= until) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** What was known at a moment; the last few answers are kept, because every panel asks. */
  at(seconds) {
    const count = this.countAt(seconds);
    if (!this._states.has(count)) {
      if (this._states.size > 8) this._states.clear();
      this._states.set(count, this.stateAfter(this.ordered.slice(0, count), this.startS + seconds + 1e-9));
    }
    return this._states.get(count);
  }

  stateAfter(lines, untilS) {
    const incidents = this.history.incidents.filter((one) => one.time_s <= untilS);
    const stalled = incidents.filter((one) => one.stalled_until_s !== null && one.stalled_until_s <= untilS);
    const state = { ...freshState(this.started), incidents, untilS, stallS: stalled.reduce((sum, one) => sum + one.stall_s, 0) };
    for (const line of lines) read(state, line);
    settleFailures(state);
    followHeaviest(state);
    settleHeads(state);
    settleDevices(state);
    settleBranches(state);
    return state;
  }
}

function freshState(started) {
  const clusters = started?.clusters ?? [];
  const devices = new Map();
  clusters.forEach((ids, cluster) => ids.forEach((id) => devices.set(id, {
    id, cluster, status: "alive", sinceS: 0, wasAway: false, isIn: false, isApart: false, missing: "", isHead: false,
  })));
  return {
    started, clusters, devices, rounds: [], others: [], evaluations: [], heaviest: null, current: null, heads: [],
    takeovers: [], alarms: [], traffic: new Map(), senders: new Set(), control: { messages: 0, bytes: 0 }, ended: null, scores: null,
    all: [], parents: new Map(), branches: [],
  };
}

const historyOf = (line) => versionOf(line.version).history;

function read(state, line) {
  switch (line.kind) {
    case "round_closed": {
      state.all.push(line);
      state.parents.set(historyOf(line), line);
      const version = versionOf(line.version);
      if (!state.heaviest || isHeavier(version, state.heaviest)) [state.heaviest, state.current] = [version, line];
      break;
    }
    case "roster": state.parents.set(historyOf(line), line); break;
    case "takeover": state.takeovers.push(line); break;
    case "evaluation": if (line.auroc !== null) state.evaluations.push(line); break;
    case "traffic": count(state, line); break;
    case "run_ended": state.ended = line; break;
    case "scores": state.scores = line; break;
    case "alarm": alarm(state, line); break;
  }
}

/** The status of each device at a moment, from the history; one that is back counts as away until a round has its samples. */
function settleFailures(state) {
  for (const [ids, status, fromS, backS] of state.incidents.flatMap((one) => one.failures)) {
    const isBack = backS !== null && backS <= state.untilS;
    if (fromS > state.untilS) continue;
    for (const id of ids) Object.assign(state.devices.get(id) ?? {}, { status: isBack ? "returning" : status, sinceS: isBack ? backS : fromS, wasAway: true });
  }
}

/** A group of alarms of a device that watches; its id is a name and the number of the event in it. */
function alarm(state, line) {
  const name = line.id.slice(0, line.id.lastIndexOf("-"));
  const known = state.alarms.find((one) => one.name === name);
  if (known) Object.assign(known, { line, isOpen: line.event !== "close" });
  else state.alarms.push({ name, line, isOpen: line.event !== "close" });
}

function count(state, line) {
  const sum = state.traffic.get(line.history) ?? { messages: 0, bytes: 0 };
  for (const [, , bytes] of line.sent) { sum.messages += 1; sum.bytes += bytes; }
  state.traffic.set(line.history, sum);
  state.senders.add(line.device);
  state.control.messages += line.control_messages;
  state.control.bytes += line.control_bytes;
}

/** The last round before one whose parent has no record: a device that was away has none of that time. */
function beforeGap(state, line) {
  const earlier = line.parent ? state.all.filter((one) => one.round < line.round) : [];
  const last = earlier.reduce((best, one) => (!best || isHeavier(versionOf(one.version), versionOf(best.version)) ? one : best), null);
  return last ? historyOf(last) : null;
}

/** The rounds behind the heaviest version are the model's history; all others are branches. */
function followHeaviest(state) {
  const behind = new Set();
  let place = state.heaviest?.history;
  while (place && !behind.has(place)) {
    const line = state.parents.get(place);
    behind.add(place);
    place = state.parents.has(line.parent) ? line.parent : beforeGap(state, line);
  }
  state.rounds = state.all.filter((line) => behind.has(historyOf(line)));
  state.others = state.all.filter((line) => !behind.has(historyOf(line)));
  const mine = new Set(state.rounds.map((line) => line.version));
  state.evaluations.sort((one, other) => one.round - other.round);  // what was kept late is scored late
  state.mainEvaluations = state.evaluations.filter((line) => mine.has(line.version));
  state.otherEvaluations = state.evaluations.filter((line) => !mine.has(line.version));
}

function settleHeads(state) {
  let heads = state.current ? [...state.current.heads] : state.clusters.map((ids) => ids[0]);
  const sinceS = state.current?.time_s ?? -Infinity;
  for (const line of state.takeovers) {
    if (line.time_s <= sinceS || state.devices.get(line.device)?.status === "cut") continue;
    heads = heads.filter((id) => id !== line.previous && id !== line.device);
    heads.push(line.device);
  }
  // The chain runs through the clusters in their order.
  heads.sort((one, other) => (state.devices.get(one)?.cluster ?? 0) - (state.devices.get(other)?.cluster ?? 0));
  state.heads = heads;
  for (const id of heads) if (state.devices.has(id)) state.devices.get(id).isHead = true;
}

function settleDevices(state) {
  if (!state.current) return;
  for (const id of state.current.included) {
    const device = state.devices.get(id);
    if (!device) continue;
    device.isIn = true;
    if (device.status === "returning" && state.current.time_s >= device.sinceS) device.status = "alive";
  }
  for (const [id, why] of Object.entries(state.current.missing)) {
    const device = state.devices.get(Number(id));
    if (device) device.missing = why;
  }
}

/** Devices whose last round is not behind the heaviest version train another model. */
function settleBranches(state) {
  const main = new Set(state.rounds);
  const open = new Set([...state.devices.values()].filter((one) => one.status !== "dead").map((one) => one.id));
  const branches = new Map();
  const rounds = state.others.length ? state.all.slice(-3 * state.devices.size) : [];
  for (const line of rounds.reverse()) {
    const mine = line.included.filter((id) => open.delete(id));
    if (mine.length && !main.has(line)) branches.set(line, mine);
    if (!open.size) break;
  }
  state.branches = [...branches].map(([line, devices]) => ({ line, devices, heads: line.heads.filter((id) => devices.includes(id)) }));
  for (const { devices, heads } of state.branches) {
    for (const id of devices) Object.assign(state.devices.get(id) ?? {}, { isApart: true });
    for (const id of heads) Object.assign(state.devices.get(id) ?? {}, { isHead: true });
  }
}

const N_METRICS = 6; // more than this are in the records only

/** The metrics of a learner that are shown: a training loss is there already. */
export function metricNames(state) {
  const names = new Set(state.all.flatMap((one) => Object.keys(one.metrics ?? {}).filter((name) => one.metrics[name] !== one.loss)));
  return [...names].slice(0, N_METRICS);
}

/** Messages and bytes of a round: as counted, or as recorded so far. */
export function costOf(round, state) {
  const told = state.traffic.get(round.parent) ?? { messages: 0, bytes: 0 };
  const isCounted = Object.keys(round.messages).length > 0;
  return {
    messages: isCounted ? round.messages : { unicast: told.messages },
    bytes: isCounted ? round.bytes : told.bytes,
    isCounted,
  };
}
