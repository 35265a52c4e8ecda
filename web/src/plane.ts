// The plane of a tensor that is looked at: two axes span it, the others stand still at one index each.

export interface Plane { shape: readonly number[]; row: number; column: number } // -1: the axis does not exist (rank 0 or 1)

export const rowsOf = (plane: Plane) => (plane.row < 0 ? 1 : plane.shape[plane.row]!);
export const columnsOf = (plane: Plane) => (plane.column < 0 ? 1 : plane.shape[plane.column]!);

// The two axes worth looking at: the last two that have more than one index, else the last two.
export function defaultAxes(shape: readonly number[]): { row: number; column: number } {
  if (shape.length === 0) return { row: -1, column: -1 };
  if (shape.length === 1) return { row: -1, column: 0 };
  const wide = shape.map((size, axis) => ({ size, axis })).filter((each) => each.size > 1).map((each) => each.axis);
  if (wide.length >= 2) return { row: wide[wide.length - 2]!, column: wide[wide.length - 1]! };
  const column = wide.length === 1 ? wide[0]! : shape.length - 1;
  return { row: column === 0 ? 1 : column - 1, column };
}

export function parseAxes(text: string | undefined, shape: readonly number[]): { row: number; column: number } {
  const parts = (text ?? '').split(',').map(Number);
  const fits = (axis: number | undefined): axis is number => Number.isInteger(axis) && axis! >= 0 && axis! < shape.length;
  if (shape.length >= 2 && parts.length === 2 && fits(parts[0]) && fits(parts[1]) && parts[0] !== parts[1])
    return { row: parts[0], column: parts[1] };
  return defaultAxes(shape);
}

export const clamp = (value: number, low: number, high: number) => Math.min(Math.max(value, low), Math.max(low, high));

// One index per axis, inside the shape whatever the text says.
export function parseIndex(text: string | undefined, shape: readonly number[]): number[] {
  const parts = (text ?? '').replace(/[[\]()\s]+/g, ' ').trim().split(/[ ,;x]+/).filter(Boolean).map(Number);
  return shape.map((size, axis) => { const given = parts[axis]; return Number.isInteger(given) ? clamp(given!, 0, size - 1) : 0; });
}

// The same, but says what is wrong with what a person typed.
export function readIndex(text: string, shape: readonly number[]): number[] | string {
  const parts = text.replace(/[[\]()\s]+/g, ' ').trim().split(/[ ,;]+/).filter(Boolean);
  if (parts.length === 1 && shape.length > 1 && /^\d+$/.test(parts[0]!)) {
    let flat = Number(parts[0]);
    const total = shape.reduce((product, size) => product * size, 1);
    if (flat >= total) return `element ${flat} is outside: there are ${total}`;
    const index = shape.map(() => 0);
    for (let axis = shape.length - 1; axis >= 0; axis--) { index[axis] = flat % shape[axis]!; flat = Math.floor(flat / shape[axis]!); }
    return index;
  }
  if (parts.length !== shape.length) return `${parts.length} numbers for ${shape.length} axes: write ${shape.map((_, axis) => `i${axis}`).join(', ')} or one flat index`;
  const index: number[] = [];
  for (let axis = 0; axis < shape.length; axis++) {
    let value = Number(parts[axis]);
    if (!Number.isInteger(value)) return `${JSON.stringify(parts[axis])} is not a whole number`;
    if (value < 0) value += shape[axis]!; // counted from the end
    if (value < 0 || value >= shape[axis]!) return `${parts[axis]} is outside axis ${axis}, which has ${shape[axis]} indices`;
    index.push(value);
  }
  return index;
}

// A window of values around a place: as far to the left and above as to the right and below, inside the shape.
export function windowAround(plane: Plane, at: readonly number[], rows: number, columns: number): { start: number[]; count: number[] } {
  const start = plane.shape.map((size, axis) => clamp(at[axis] ?? 0, 0, size - 1));
  const count = plane.shape.map((size) => Math.min(1, size));
  const open = (axis: number, most: number) => {
    if (axis < 0) return;
    const size = plane.shape[axis]!;
    const wide = Math.min(most, size);
    count[axis] = wide;
    start[axis] = clamp((at[axis] ?? 0) - Math.floor((wide - 1) / 2), 0, size - wide);
  };
  open(plane.row, rows);
  open(plane.column, columns);
  return { start, count };
}

// Where element (row, column) of a window is in the flat values of the block, which are in the tensor's own axis order.
export function blockOffset(plane: Plane, count: readonly number[], row: number, column: number): number {
  const rows = plane.row < 0 ? 1 : count[plane.row]!;
  const columns = plane.column < 0 ? 1 : count[plane.column]!;
  return plane.row < plane.column ? row * columns + column : column * rows + row;
}

// The finest level whose scalars are at least a pixel large, so that none hides behind another; and not more tiles than
// can be had at once. Where the scales of the axes differ, the larger counts: the drawing folds the other axis itself.
export function levelFor(scaleX: number, scaleY: number, visibleRows: number, visibleColumns: number, mostTiles: number): number {
  let level = Math.max(0, Math.ceil(Math.log2(1 / Math.max(scaleX, scaleY)) - 1e-9));
  const tiles = (at: number) => (Math.ceil(visibleRows / 2 ** at / 256) + 1) * (Math.ceil(visibleColumns / 2 ** at / 256) + 1);
  while (tiles(level) > mostTiles) level++;
  return level;
}
