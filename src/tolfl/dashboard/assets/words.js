// Small words: numbers, sentences for lines, and elements. Text from records only ever becomes text, never markup.

import { sidesOf } from "./story.js";

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children.map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return made;
}

export function svg(tag, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

export const seconds = (value) =>
  value === null || value === undefined ? "–" : `${value.toFixed(value < 10 ? 2 : 1)} s`;

export const number = (value, digits = 4) =>
  value === null || value === undefined ? "–" : Number(value.toPrecision(digits)).toLocaleString("en");

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) { value /= 1000; place += 1; }
  return `${place ? value.toFixed(2) : value} ${units[place]}`;
}

/** 0, 1, 2, 5 as "0–2, 5": five hundred devices must fit into a line. */
export function ranges(ids) {
  const sorted = [...ids].sort((one, other) => one - other);
  const parts = [];
  for (let first = 0; first < sorted.length;) {
    let last = first;
    while (last + 1 < sorted.length && sorted[last + 1] === sorted[last] + 1) last += 1;
    parts.push(last > first ? `${sorted[first]}–${sorted[last]}` : `${sorted[first]}`);
    first = last + 1;
  }
  return parts.join(", ");
}

const STATUS_WORDS = {
  alive: "training", dead: "dead", frozen: "frozen", cut: "cut off", unreachable: "does not answer",
  returning: "coming back", left: "has left",
};

export function statusOf(device) {
  if (device.status === "alive" && device.wasAway) return "training, returned";
  return STATUS_WORDS[device.status] ?? device.status;
}

/** What a line says, and whether it is good or bad news; null for lines that only the charts show. */
export function sentenceFor(line) {
  switch (line.kind) {
    case "run_started": return { text: `${line.scheme} on ${line.data} starts, seed ${line.seed}`, mood: "" };
    case "failure": return failureSentence(line);
    case "takeover": return {
      text: `device ${line.device} takes over cluster ${line.cluster} from device ${line.previous}`, mood: "good",
    };
    case "join": return { text: `device ${line.device} is part of the fleet again`, mood: "good" };
    case "run_ended": return { text: `the run ends: ${line.reason}`, mood: "" };
    case "scores": return { text: `AUROC in the end: ${number(line.auroc, 3)}`, mood: "" };
    case "evaluation": return { text: `AUROC ${number(line.auroc, 3)} after round ${line.round + 1}`, mood: "quiet" };
    case "round_closed": return { text: roundSentence(line), mood: "quiet" };
    case "roster": return { text: rosterSentence(line), mood: "quiet" };
    default: return null;
  }
}

function failureSentence(line) {
  const mood = /^(came back|healed|thawed)/.test(line.what) ? "good" : "bad";
  if (line.device === null || line.device === undefined) return { text: cutWords(line.what), mood };
  const by = line.by === null || line.by === undefined ? "" : `, by device ${line.by}`;
  return { text: `device ${line.device} ${line.what}${by}`, mood };
}

export function cutWords(what) {
  const [one, other] = sidesOf(what);
  const word = /^healed/.test(what) ? "connected again with" : "cut off from";
  return one.length && other.length ? `${ranges(one)} ${word} ${ranges(other)}` : what;
}

function roundSentence(line) {
  const stall = line.stall_s > 0 ? `, stalled ${seconds(line.stall_s)}` : "";
  const stage = line.stage ? ` (${line.stage})` : "";
  return `round ${line.round + 1}${stage} closed by device ${line.device}: ${line.included.length} devices inside${stall}`;
}

function rosterSentence(line) {
  return line.is_over ? `device ${line.device} closes the run` : `${line.devices.length} devices go on`;
}
