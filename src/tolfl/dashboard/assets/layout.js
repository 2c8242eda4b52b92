// Where devices stand: clusters side by side along the chain, row by row and back, members around their first head.

const GAP = 1.25; // between clusters, in diameters of a device
const ROUND = Math.PI * (3 - Math.sqrt(5)); // turning by this angle fills a disc evenly

/** Offsets of `n` devices around a middle, in diameters: the head, a ring of up to eight, or a disc of many. */
export function around(n) {
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
  let best = { unit: 0, columns: 1 };
  for (let columns = 1; columns <= clusters.length; columns += 1) {
    const rows = Math.ceil(clusters.length / columns);
    const unit = Math.min(width / (columns * cell), maxHeight / (rows * cell), 44);
    if (unit > best.unit + 1e-9) best = { unit, columns };
  }
  const { unit, columns } = best;
  const rows = Math.ceil(clusters.length / columns);
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
