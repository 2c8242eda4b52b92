// The fleet as a picture: devices, whom they report to, the chain of heads, and messages on their way.

import { element, statusOf, svg } from "./format.js";

const MAX_HEIGHT = 460;
const FLIGHT_MS = 650;
const DELAYS_MS = { report: 0, mean: 300, model: 750 };
const MOST_FLIGHTS = 1200;

export class Topology {
  constructor(run, onSelect) {
    this.run = run;
    this.onSelect = onSelect;
    this.nodes = new Map();
    this.flights = [];
    this.picture = svg("svg", { class: "fleet", role: "group", "aria-label": `Devices of ${run.name}` });
    this.canvas = element("canvas", { class: "flights", "aria-hidden": "true" });
    this.box = element("div", { class: "topology" }, this.picture, this.canvas);
    this.layers = ["areas", "links", "chain", "devices"].map((name) => svg("g", { class: name }));
    this.picture.append(...this.layers);
    this.picture.addEventListener("keydown", (event) => this.walk(event));
    new ResizeObserver(() => this.build()).observe(this.box);
    this.draw = this.draw.bind(this);
  }

  /** Lay out anew: another width, or the clusters are known now. */
  build() {
    const clusters = this.run.started?.clusters ?? [];
    const width = this.box.clientWidth;
    if (!clusters.length || !width) return;
    const key = `${width} ${JSON.stringify(clusters.map((ids) => ids.length))}`;
    if (key === this.built) return;
    this.built = key;
    this.layout = place(clusters, width, MAX_HEIGHT);
    const { height, middles, clusterRadius } = this.layout;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.setAttribute("height", height);
    this.picture.classList.toggle("small", this.layout.radius < 8);
    const sharp = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * sharp, height: height * sharp });
    this.canvas.style.height = `${height}px`;
    const [areas, , , devices] = this.layers;
    areas.replaceChildren(...(clusterRadius > 6
      ? middles.map(([cx, cy]) => svg("circle", { cx, cy, r: clusterRadius })) : []));
    this.nodes.clear();
    devices.replaceChildren(...clusters.flat().map((id) => this.node(id)));
    if (this.state) this.show(this.state, this.selected);
  }

  node(id) {
    const [x, y] = this.layout.places.get(id);
    const group = svg("g", { transform: `translate(${x} ${y})`, role: "button", tabindex: -1, "data-device": id });
    group.addEventListener("click", () => this.choose(id));
    this.nodes.set(id, { group, told: "" });
    return group;
  }

  choose(id) {
    this.onSelect(id);
    this.nodes.get(id)?.group.focus({ preventScroll: true });
  }

  /** Arrow keys go through the devices; Enter and Space open one. */
  walk(event) {
    const ids = [...this.nodes.keys()];
    const at = ids.indexOf(Number(event.target.closest("[data-device]")?.dataset.device));
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in steps) this.focus(ids[(at + steps[event.key] + ids.length) % ids.length]);
    else if (event.key === "Home") this.focus(ids[0]);
    else if (event.key === "End") this.focus(ids.at(-1));
    else if (event.key === "Enter" || event.key === " ") this.onSelect(ids[at]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  focus(id) {
    for (const [other, { group }] of this.nodes) group.setAttribute("tabindex", other === id ? 0 : -1);
    this.nodes.get(id).group.focus();
  }

  show(state, selected) {
    Object.assign(this, { state, selected });
    this.build();
    if (!this.layout) return;
    let hasStop = false;
    for (const [id, node] of this.nodes) {
      const device = state.devices.get(id);
      if (device) this.dress(node, device, id === selected);
      hasStop ||= node.group.getAttribute("tabindex") === "0";
    }
    if (!hasStop) this.nodes.values().next().value?.group.setAttribute("tabindex", 0);
    this.connect(state);
  }

  dress(node, device, isSelected) {
    const told = [device.status, device.isHead, device.isIn, device.isApart, device.wasAway, isSelected].join();
    if (told === node.told) return;
    node.told = told;
    const r = this.layout.radius * (device.isHead ? 1.2 : 1);
    const classes = [device.status, device.isIn ? "in" : device.isApart ? "apart" : "out"];
    if (device.isHead) classes.push("head");
    if (isSelected) classes.push("selected");
    node.group.setAttribute("class", classes.join(" "));
    const role = device.isHead ? "head" : "member";
    const inside = device.isIn ? "its samples are in the model"
      : device.isApart ? "it trains another model" : "its samples are not in the model";
    node.group.setAttribute("aria-label", `Device ${device.id}, ${role} of cluster ${device.cluster}, ${statusOf(device)}, ${inside}`);
    node.group.setAttribute("aria-pressed", String(isSelected));
    const parts = [svg("circle", { class: "body", r })];
    if (device.isHead) parts.unshift(svg("circle", { class: "ring", r: r * 1.32 }));
    if (isSelected) parts.unshift(svg("circle", { class: "chosen", r: Math.max(8, r * 1.6) }));
    const mark = glyph(device.status, r * 0.5);
    if (mark) parts.push(mark);
    else if (r >= 8) parts.push(label(device.id, r));
    if (device.wasAway && device.status === "alive") parts.push(svg("circle", { class: "badge", cx: r * 0.8, cy: -r * 0.8, r: Math.max(1.5, r * 0.3) }));
    if (mark && r >= 8) parts.push(caption(device.id, isSelected ? r * 1.35 : r));
    node.group.replaceChildren(...parts);
  }

  connect(state) {
    const key = `${this.built} ${state.heads.join()} ${[...state.devices.values()].map((one) => one.status[0] + one.isIn + one.isApart).join()}`;
    if (key === this.connected) return;
    this.connected = key;
    const at = (id) => this.layout.places.get(id);
    const apart = new Set(state.branches.flatMap((one) => one.devices));
    const together = [...state.devices.keys()].filter((id) => !apart.has(id));
    const fleets = [{ devices: together, heads: state.heads.filter((id) => !apart.has(id)) }, ...state.branches];
    const isWhole = (ids) => ids.every((id) => !["dead", "frozen", "unreachable"].includes(state.devices.get(id).status));
    const report = ([one, other]) => line(at(one), at(other), isWhole([one, other]) ? "" : "broken");
    const link = ([one, other]) => curve(at(one), bend(this.layout, one, other), at(other), isWhole([one, other]) ? "" : "broken");
    this.layers[1].replaceChildren(...fleets.flatMap((fleet) => reports(fleet, state.devices)).map(report));
    this.layers[2].replaceChildren(...fleets.flatMap(({ heads }) => heads.slice(1).map((id, i) => [heads[i], id])).map(link));
  }

  /** Let messages fly: those that devices wrote down, or those that a closed round must have needed. */
  fly(lines) {
    if (!this.layout || matchMedia("(prefers-reduced-motion: reduce)").matches || document.hidden) return;
    const hasTraffic = this.run.hasTraffic;
    const start = performance.now();
    for (const one of lines) {
      const sent = one.kind === "traffic" ? one.sent.map(([to, kind]) => [one.device, to, kind])
        : one.kind === "round_closed" && !hasTraffic ? this.supposed(one) : [];
      for (const [from, to, kind] of sent) {
        if (this.flights.length < MOST_FLIGHTS) this.flights.push({ from, to, kind, start: start + (DELAYS_MS[kind] ?? 0) });
      }
    }
    if (this.flights.length && !this.isDrawing) {
      this.isDrawing = true;
      requestAnimationFrame(this.draw);
    }
  }

  supposed(round) {
    const { devices } = this.state;
    const headOf = new Map(round.heads.map((id) => [devices.get(id)?.cluster, id]));
    const members = round.included.filter((id) => headOf.get(devices.get(id)?.cluster) !== id);
    const ups = members.map((id) => [id, headOf.get(devices.get(id)?.cluster), "report"]);
    const chain = round.heads.slice(1).map((id, i) => [round.heads[i], id, "mean"]);
    const downs = [...ups.map(([id, head]) => [head, id, "model"]), ...chain.map(([from, to]) => [to, from, "model"])];
    return [...ups, ...chain, ...downs].filter(([from, to]) => from !== undefined && to !== undefined);
  }

  draw(nowMs) {
    const pen = this.canvas.getContext("2d");
    const sharp = window.devicePixelRatio || 1;
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const styles = getComputedStyle(this.canvas);
    const size = Math.max(1.5, Math.min(4.5, this.layout.radius * 0.32));
    this.flights = this.flights.filter((one) => nowMs - one.start < FLIGHT_MS);
    for (const { from, to, kind, start } of this.flights) {
      const share = (nowMs - start) / FLIGHT_MS;
      const [a, b] = [this.layout.places.get(from), this.layout.places.get(to)];
      if (share < 0 || !a || !b) continue;
      pen.fillStyle = kind === "model" ? styles.color : styles.outlineColor;
      pen.beginPath();
      const c = kind === "report" ? middle(a, b) : bend(this.layout, from, to);
      const along = (i) => (1 - share) ** 2 * a[i] + 2 * share * (1 - share) * c[i] + share ** 2 * b[i];
      pen.arc(along(0), along(1), size, 0, 2 * Math.PI);
      pen.fill();
    }
    this.isDrawing = this.flights.length > 0;
    if (this.isDrawing) requestAnimationFrame(this.draw);
  }
}

/** Who reports to whom in a fleet, or in a part of one that goes its own way. */
function reports({ devices, heads }, known) {
  const headOf = new Map(heads.map((id) => [known.get(id)?.cluster, id]));
  return devices.map((id) => [id, headOf.get(known.get(id)?.cluster)])
    .filter(([id, head]) => head !== undefined && head !== id && known.get(id).status !== "dead");
}

const middle = (a, b) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];

/** Where a line between two devices bends: around those that stand in its way, or nowhere. */
function bend({ places, radius, clusterRadius }, one, other) {
  const [a, b] = [places.get(one), places.get(other)];
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
  const length = Math.hypot(dx, dy) || 1;
  const isInTheWay = ([id, [x, y]]) => {
    const along = ((x - a[0]) * dx + (y - a[1]) * dy) / length;
    const aside = Math.abs((x - a[0]) * dy - (y - a[1]) * dx) / length;
    return id !== one && id !== other && along > 0 && along < length && aside < 1.2 * radius;
  };
  const [x, y] = middle(a, b);
  if (![...places].some(isInTheWay)) return [x, y];
  const turn = one < other ? 1 : -1; // there and back on the same way
  return [x + (turn * dy * clusterRadius) / length, y - (turn * dx * clusterRadius) / length];
}

const curve = ([x1, y1], [x, y], [x2, y2], name) => svg("path", { d: `M${x1} ${y1}Q${x} ${y} ${x2} ${y2}`, class: name });

const line = ([x1, y1], [x2, y2], name) => svg("line", { x1, y1, x2, y2, class: name });

function label(id, r) {
  const text = svg("text", { "font-size": Math.min(15, r * 0.95), dy: "0.35em" });
  text.textContent = String(id);
  return text;
}

function caption(id, r) {
  const text = svg("text", { class: "caption", "font-size": Math.min(12, r * 0.85), y: r * 1.25, dy: "0.8em" });
  text.textContent = String(id);
  return text;
}

/** A sign beside the colour: a cross for dead, bars for frozen, a gap for cut off, a turn for coming back. */
function glyph(status, s) {
  const paths = {
    dead: `M${-s} ${-s}L${s} ${s}M${s} ${-s}L${-s} ${s}`,
    frozen: `M${-s * 0.5} ${-s}V${s}M${s * 0.5} ${-s}V${s}`,
    cut: `M${-s} 0H${-s * 0.3}M${s * 0.3} 0H${s}M${-s * 0.3} ${-s}V${s}M${s * 0.3} ${-s}V${s}`,
    unreachable: `M${-s} 0H${-s * 0.4}M${s * 0.4} 0H${s}`,
    returning: `M${s * 0.9} 0A${s * 0.9} ${s * 0.9} 0 1 1 0 ${-s * 0.9}M0 ${-s * 1.4}L${s * 0.5} ${-s * 0.9}L0 ${-s * 0.4}`,
  };
  return status in paths ? svg("path", { class: "glyph", d: paths[status], "stroke-width": Math.max(1, s * 0.35) }) : null;
}

// -- where devices stand: clusters side by side along the chain, members around their first head ------------------

const GAP = 1.25; // between clusters, in diameters of a device
const ROUND = Math.PI * (3 - Math.sqrt(5)); // turning by this angle fills a disc evenly

/** Offsets of `n` devices around a middle, in diameters: the head, a ring of up to eight, or a disc of many. */
function around(n) {
  if (n <= 1) return [[0, 0]];
  if (n === 2) return [[-0.8, 0], [0.8, 0]];
  if (n <= 9) {
    const radius = Math.max(1.6, (n - 1) * 0.23);
    const ring = Array.from({ length: n - 1 }, (_, i) => {
      const angle = -Math.PI / 2 + (2 * Math.PI * (i + 0.5)) / (n - 1);
      return [radius * Math.cos(angle), radius * Math.sin(angle)];
    });
    return [[0, 0], ...ring];
  }
  return Array.from({ length: n }, (_, i) => {
    const radius = i ? 0.55 + 0.72 * Math.sqrt(i) : 0;
    return [radius * Math.cos(i * ROUND), radius * Math.sin(i * ROUND)];
  });
}

const reach = (offsets) => Math.max(...offsets.map(([x, y]) => Math.hypot(x, y))) + 0.5;

/** Place clusters in a box: `places` maps a device to x and y, `radius` is a device's, `height` what is used. */
export function place(clusters, width, maxHeight) {
  const offsets = clusters.map((ids) => around(ids.length));
  const cell = 2 * Math.max(0.5, ...offsets.map(reach)) + GAP;
  let best = { unit: 0, columns: 1, rows: clusters.length };
  for (let columns = 1; columns <= clusters.length; columns += 1) {
    const rows = Math.ceil(clusters.length / columns);
    const unit = Math.min(width / (columns * cell), maxHeight / (rows * cell), 44);
    const isLarger = unit > best.unit + 1e-9;
    if (isLarger || (unit > best.unit - 1e-9 && rows < best.rows)) best = { unit, columns, rows };
  }
  const { unit, columns, rows } = best;
  const margin = (width - columns * cell * unit) / 2;
  const places = new Map();
  const middles = clusters.map((ids, index) => {
    const row = Math.floor(index / columns);
    const along = index % columns;
    const column = row % 2 ? columns - 1 - along : along; // back again, so that the chain never jumps
    const middle = [margin + (column + 0.5) * cell * unit, (row + 0.5) * cell * unit];
    ids.forEach((id, i) => places.set(id, [middle[0] + offsets[index][i][0] * unit, middle[1] + offsets[index][i][1] * unit]));
    return middle;
  });
  return { places, middles, radius: unit * 0.36, clusterRadius: (cell - GAP * 0.5) * unit * 0.5, height: rows * cell * unit };
}
