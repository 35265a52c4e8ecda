// The list of tensors: what the server tells, made into rows; filtered, sorted and grouped without ever changing an id.
import { number, type TensorList, type Wire } from './api';
import { elements } from './format';

export type Kind = 'pair' | 'only_a' | 'only_b' | 'skipped';
export interface Row {
  id: string; // as the server calls it; '' for what could not be read
  order: number; // place in execution order, the same under any sorting
  kind: Kind; name: string; nameB: string; layer: string; layerOrder: number; stage: string; verdict: string;
  shape: number[]; dtypeA: string; dtypeB: string; maxAbs: number; relL2: number; roundings: number; cosine: number;
  count: number; how: string; recipe: string; floor: number; reason: string; ambiguous: boolean; guess: boolean; byHand: boolean;
  min: number; max: number; nan: number; inf: number; // of one side alone
}
export type Sort = 'order' | 'name' | 'error' | 'max' | 'cosine' | 'size';
export type Group = 'layer' | 'stage' | 'verdict' | 'none';
export interface Choice { sort: Sort; descending: boolean; group: Group; show: ReadonlySet<string>; search: string }
export type Item = { type: 'group'; key: string; label: string; count: number; worst: string; open: boolean } | { type: 'row'; row: Row };

export const verdicts = ['differs', 'cannot tell', 'noise', 'ok', 'only one side', 'unreadable', 'skipped'] as const;
const badness: Record<string, number> = { differs: 5, unreadable: 4, 'only one side': 3, 'cannot tell': 3, noise: 1, ok: 0, skipped: 0, '': -1 };

// Finds the layer in a name where the server does not say it: a number between separators.
export function layerOf(name: string): string {
  const match = /(?:layers?|blk|block|h|L)[._]?(\d+)(?=[._/:]|$)/i.exec(name) ?? /^(\d+)[_.]/.exec(name);
  return match ? match[1]! : '';
}

const text = (value: unknown) => (typeof value === 'string' ? value : value === null || value === undefined ? '' : String(value));
const sizes = (value: unknown) => (Array.isArray(value) ? value.map(Number) : []);

export function readRows(list: TensorList, single = false): Row[] {
  const place = new Map(list.columns.map((name, index) => [name, index]));
  const rows: Row[] = [];
  const layerFields = (given: unknown, name: string) => {
    const layer = given === null || given === undefined || given === '' || given === -1 ? layerOf(name) : text(given);
    const order = Number(layer);
    return { layer, layerOrder: layer !== '' && Number.isFinite(order) ? order : NaN };
  };
  for (const cells of list.rows) {
    const cell = (name: string) => { const index = place.get(name); return index === undefined ? undefined : cells[index]; };
    const value = (name: string) => number(cell(name) as Wire);
    const name = text(cell('name'));
    const shape = sizes(cell('shape'));
    const count = value('count');
    rows.push({
      id: text(cell('id')), order: rows.length, kind: !single ? 'pair' : text(cell('id')).startsWith('b') ? 'only_b' : 'only_a', name, nameB: text(cell('name_b')),
      ...layerFields(cell('layer'), name), stage: text(cell('stage')), verdict: text(cell('verdict')),
      shape, dtypeA: text(cell('dtype_a')), dtypeB: text(cell('dtype_b')), maxAbs: value('max_abs'), relL2: value('rel_l2'),
      roundings: value('roundings'), cosine: value('cosine'), count: Number.isFinite(count) ? count : elements(shape),
      how: text(cell('how')), recipe: text(cell('recipe')), floor: value('floor'), reason: text(cell('problem') ?? cell('why')),
      ambiguous: cell('ambiguous') === true, guess: cell('guess') === true, byHand: cell('remapped') === true,
      min: value('min'), max: value('max'), nan: value('nan'), inf: value('inf'),
    });
  }
  const blank = { nameB: '', maxAbs: NaN, relL2: NaN, roundings: NaN, cosine: NaN, how: '', recipe: '', floor: NaN, ambiguous: false, guess: false, byHand: false, min: NaN, max: NaN, nan: NaN, inf: NaN };
  for (const side of ['a', 'b'] as const) {
    for (const tensor of (side === 'a' ? list.only_a : list.only_b) ?? []) {
      const shape = sizes(tensor.shape);
      rows.push({
        ...blank, id: text(tensor.id), order: rows.length, kind: side === 'a' ? 'only_a' : 'only_b', name: text(tensor.name),
        ...layerFields(tensor.layer, text(tensor.name)), stage: text(tensor.stage), verdict: single ? '' : 'only one side', shape,
        dtypeA: side === 'a' ? text(tensor.dtype) : '', dtypeB: side === 'b' ? text(tensor.dtype) : '', count: elements(shape),
        reason: single ? '' : text(tensor.reason) || (side === 'a' ? 'only in the reference' : 'only in the candidate'),
      });
    }
  }
  for (const skip of list.skipped ?? []) {
    rows.push({
      ...blank, id: '', order: rows.length, kind: 'skipped', name: text(skip.path), layer: '', layerOrder: NaN, stage: '',
      verdict: skip.harmless ? 'skipped' : 'unreadable', shape: [], dtypeA: skip.side === 'b' ? '' : '-', dtypeB: skip.side === 'b' ? '-' : '', count: 0,
      reason: text(skip.reason),
    });
  }
  return rows;
}

const natural = new Intl.Collator('en', { numeric: true, sensitivity: 'base' });

// Larger is worse; what is not a number at all is worst of all, what was not measured comes last either way.
function measure(row: Row, sort: Sort): number {
  if (sort === 'size') return row.count;
  if (row.kind !== 'pair') return -Infinity;
  if (sort === 'cosine') return Number.isNaN(row.cosine) ? (row.verdict === 'ok' ? -1 : Infinity) : -row.cosine;
  const error = sort === 'max' ? row.maxAbs : row.relL2;
  return Number.isNaN(error) ? (row.verdict === 'ok' ? 0 : Infinity) : error;
}

export function compareRows(sort: Sort, descending: boolean): (x: Row, y: Row) => number {
  const sign = descending ? -1 : 1;
  if (sort === 'order') return (x, y) => sign * (x.order - y.order);
  if (sort === 'name') return (x, y) => sign * natural.compare(x.name, y.name) || x.order - y.order;
  // Errors come worst first when ascending is not asked for; ties keep execution order.
  return (x, y) => {
    const p = measure(x, sort);
    const q = measure(y, sort);
    return (p === q ? 0 : sign * (p < q ? -1 : 1)) || x.order - y.order;
  };
}

// Comparing names as people do is dear: it is done once for a list, then the places are sorted.
const ranks = new WeakMap<readonly Row[], Map<Row, number>>();
function sortByName(rows: readonly Row[], shown: Row[], descending: boolean): void {
  let rank = ranks.get(rows);
  if (!rank) {
    rank = new Map();
    const sorted = [...rows].sort(compareRows('name', false));
    let place = 0;
    sorted.forEach((row, index) => {
      if (index > 0 && natural.compare(row.name, sorted[index - 1]!.name) !== 0) place++;
      rank!.set(row, place); // equal names share a place: they keep execution order either way
    });
    ranks.set(rows, rank);
  }
  const sign = descending ? -1 : 1;
  shown.sort((x, y) => sign * (rank.get(x)! - rank.get(y)!) || x.order - y.order);
}

// What is searched in, made once for each row: ten thousand of them are looked through with every letter.
const hays = new WeakMap<Row, string>();
function hayOf(row: Row): string {
  let hay = hays.get(row);
  if (hay === undefined) {
    hay = `${row.name}\n${row.nameB}\n${row.stage}\n${row.recipe}\n${row.dtypeA}\n${row.dtypeB}\n[${row.shape.join(',')}]\n#${row.id}\n${row.reason}`.toLowerCase();
    hays.set(row, hay);
  }
  return hay;
}

export function matches(row: Row, words: readonly string[]): boolean {
  if (words.length === 0) return true;
  const hay = hayOf(row);
  return words.every((word) => hay.includes(word));
}

function groupOf(row: Row, group: Group): { key: string; label: string } {
  if (row.kind === 'skipped' && group !== 'verdict') return { key: 'unreadable', label: 'not read' };
  if (group === 'layer') return row.layer === '' ? { key: 'no layer', label: 'outside the layers' } : { key: row.layer, label: `layer ${row.layer}` };
  if (group === 'stage') return row.stage === '' ? { key: 'no stage', label: 'other' } : { key: row.stage, label: row.stage };
  return { key: row.verdict || 'not compared', label: row.verdict || 'not compared' };
}

// Rows of one run of execution order stay together: what comes before the layers is a group before them, what comes
// after them one after them. Under another order there is one group of each kind.
export function arrange(rows: readonly Row[], choice: Choice, isShut: (key: string) => boolean): { items: Item[]; shown: Row[]; groups: string[] } {
  const words = choice.search.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = rows.filter((row) => (choice.show.size === 0 || choice.show.has(row.verdict)) && matches(row, words));
  if (choice.sort === 'name') sortByName(rows, shown, choice.descending);
  else shown.sort(compareRows(choice.sort, choice.descending));
  if (choice.group === 'none') return { items: shown.map((row) => ({ type: 'row', row })), shown, groups: [] };

  interface Bucket { key: string; label: string; rows: Row[] }
  const buckets: Bucket[] = [];
  const byKey = new Map<string, Bucket>();
  for (const row of shown) {
    const { key, label } = groupOf(row, choice.group);
    let bucket = byKey.get(key);
    if (key === 'no layer' && choice.sort === 'order') {
      const last = buckets[buckets.length - 1];
      if (last && last.key.startsWith('no layer')) bucket = last;
      else if (last) bucket = byKey.get('no layer after');
      if (!bucket) {
        const fresh = last ? 'no layer after' : 'no layer';
        bucket = { key: fresh, label: last ? 'after the layers' : 'before the layers', rows: [] };
        byKey.set(fresh, bucket);
        buckets.push(bucket);
      }
    } else if (!bucket) {
      bucket = { key, label, rows: [] };
      byKey.set(key, bucket);
      buckets.push(bucket);
    }
    bucket.rows.push(row);
  }
  if (buckets.length === 1 && buckets[0]!.key.startsWith('no layer')) buckets[0]!.label = 'outside the layers';
  if (choice.group === 'verdict') buckets.sort((x, y) => verdicts.indexOf(x.key as never) - verdicts.indexOf(y.key as never));
  const items: Item[] = [];
  const ordered: Row[] = [];
  for (const bucket of buckets) {
    const worst = bucket.rows.reduce((most, row) => (badness[row.verdict]! > badness[most]! ? row.verdict : most), '');
    const open = !isShut(bucket.key);
    items.push({ type: 'group', key: bucket.key, label: bucket.label, count: bucket.rows.length, worst, open });
    if (open) for (const row of bucket.rows) items.push({ type: 'row', row });
    ordered.push(...bucket.rows);
  }
  return { items, shown: ordered, groups: buckets.map((bucket) => bucket.key) };
}
