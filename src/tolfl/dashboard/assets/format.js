// Numbers and elements. Text from records only ever becomes text, never markup.

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

/** As the report writes them. */
export const seconds = (value) => (value === null || value === undefined ? "–" : value < 1e-6 ? "0 s" : `${value.toFixed(2)} s`);

/** How old something is, in the unit that fits, as `tolfl status` says it. */
export function age(value) {
  const whole = Math.max(0, value);
  for (const [unit, size, most] of [["s", 1, 120], ["min", 60, 7200], ["h", 3600, 172_800]]) {
    if (whole < most) return `${Math.floor(whole / size)} ${unit}`;
  }
  return `${Math.floor(whole / 86_400)} d`;
}

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
  alive: "training", dead: "dead", frozen: "frozen", cut: "cut off", unreachable: "found dead",
  returning: "coming back",
};

export function statusOf(device) {
  if (device.status === "alive" && device.wasAway) return "training, returned";
  return STATUS_WORDS[device.status] ?? device.status;
}
