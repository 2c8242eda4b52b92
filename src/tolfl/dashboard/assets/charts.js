// Loss and AUROC over rounds or seconds, one line per run, with what failed marked. Drawn by uPlot (vendor/).

const HEIGHT = 230;

/** A colour of the style sheet as canvas understands it. */
export function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

export class Chart {
  constructor(place, title, runs, pick) {
    Object.assign(this, { place, title, runs, pick, marks: [] });
    new ResizeObserver(() => this.plot?.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
  }

  /** Build anew: other colours, or another axis. */
  build(axis) {
    this.plot?.destroy();
    this.axis = axis;
    const [ink, grid] = [colour("--ink-soft"), colour("--line")];
    const look = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    this.strokes = this.runs.map((run) => colour(`--run-${run.index % 6}`));
    this.markStrokes = this.runs.length > 1 ? this.strokes : [colour("--bad")];
    const series = this.runs.flatMap((run, place) => {
      const stroke = this.strokes[place];
      const shown = (_, value) => (value === null || value === undefined ? "–" : value.toPrecision(4));
      const others = { show: true, size: 3, fill: stroke };
      return [
        { label: run.name, stroke, width: 2, spanGaps: true, value: shown, points: { show: (u, i) => u.data[i].filter((v) => v !== null).length < 30, size: 5 } },
        { label: `${run.name}, other branches`, stroke, width: 0, paths: () => null, points: others, value: shown },
      ];
    });
    this.plot = new uPlot({
      width: this.place.clientWidth || 300,
      height: HEIGHT,
      scales: { x: { time: false, range: () => [0, Math.max(1e-3, this.maxX ?? 1)] }, y: { range: (u, low, high) => padded(low, high, this.pick.span) } },
      axes: [{ ...look, label: axis, labelSize: 18, labelFont: "12px system-ui", size: 34 }, { ...look, size: 58, values: (u, ticks) => ticks.map((tick) => String(Number(tick.toPrecision(6)))) }],
      series: [{ label: axis }, ...series],
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      hooks: { draw: [(plot) => this.mark(plot)] },
    }, [[], ...series.map(() => [])], this.place);
    this.told = "";
  }

  show(states, maxX) {
    this.maxX = maxX;
    const told = states.map((state) => state.told).join() + maxX;
    if (told === this.told) return;
    this.told = told;
    const columns = states.flatMap((state, i) => [this.pick.main(state), this.pick.others(state)]
      .map((lines) => means(lines.map((one) => [this.xOf(one, i), this.pick.y(one)]))));
    const xs = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
    this.marks = states.flatMap((state, i) => state.incidents.map((one) => ({
      x: this.axis === "rounds" ? Math.max(0, one.round - 0.5) : one.time_s - this.runs[i].startS, run: i,
    })));
    this.plot.setData([xs, ...columns.map((column) => xs.map((x) => column.get(x) ?? null))]);
    this.place.setAttribute("aria-label", this.words(states));
  }

  xOf(one, i) {
    return this.axis === "rounds" ? one.round : one.time_s - this.runs[i].startS;
  }

  words(states) {
    const parts = states.map((state, i) => {
      const lines = this.pick.main(state).filter((one) => (this.pick.y(one) ?? null) !== null);
      if (!lines.length) return `${this.runs[i].name}: nothing yet`;
      const [first, last] = [lines[0], lines.at(-1)];
      return `${this.runs[i].name}: ${this.pick.y(first)?.toPrecision(3)} in round ${first.round}, `
        + `${this.pick.y(last)?.toPrecision(3)} in round ${last.round}, ${state.incidents.length} failures`;
    });
    return `${this.title}. ${parts.join(". ")}`;
  }

  /** A dashed line for every failure. */
  mark(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.setLineDash([4, 4]);
    ctx.lineWidth = 1.5;
    for (const { x, run } of this.marks) {
      ctx.strokeStyle = this.markStrokes[run];
      const at = Math.round(plot.valToPos(x, "x", true));
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }
}

/** One value for each x: eight devices on their own close eight rounds at a time. */
function means(points) {
  const sums = new Map();
  for (const [x, y] of points) {
    if (y === null) continue;
    const [sum, n] = sums.get(x) ?? [0, 0];
    sums.set(x, [sum + y, n + 1]);
  }
  return new Map([...sums].map(([x, [sum, n]]) => [x, sum / n]));
}

/** The range of an axis, at least `span`: noise must not look like a fall. */
function padded(low, high, span) {
  if (low === null || high === null) return [0, 1];
  const space = Math.max((high - low) * 0.08, (span - (high - low)) / 2);
  return [low - space, high + space];
}
