// The tensor that is looked at: what the server says about it, and where in it the eye is.
import { computed, effect, signal } from '@preact/signals';
import * as api from './api';
import { clamp, columnsOf, parseAxes, parseIndex, rowsOf, type Plane } from './plane';
import { adjust, route } from './route';
import { dark, fail, list, say, single, tell } from './state';
import { colourMap } from './colour';
import { shows, type Show } from './draw/paint';

export const detail = signal<api.Detail | null>(null);
export const trouble = signal<api.ApiError | null>(null);
export const serial = signal(0); // grows when the pair is mapped otherwise: what was fetched before is stale

let worstSeen = -1;
const target = computed(() => (list.value && route.value.tensor ? `${route.value.workspace}/${route.value.tensor}` : ''));
let request: AbortController | null = null;
effect(() => {
  const now = target.value;
  request?.abort();
  detail.value = null;
  trouble.value = null;
  worstSeen = -1;
  if (!now) return;
  request = new AbortController();
  const [workspace, id] = now.split('/') as [string, string];
  api.tensor(workspace, id, request.signal).then((found) => { if (target.value === now) { detail.value = found; serial.value++; } }, (error: unknown) => {
    if (target.value !== now || (error as Error).name === 'AbortError') return;
    if (error instanceof api.ApiError) trouble.value = error;
    else fail(error);
  });
});

export const workspaceOf = () => route.value.workspace;
export const idOf = () => route.value.tensor;

// One side alone: 'a' or 'b', else ''.
export const alone = computed(() => {
  const id = route.value.tensor;
  if (single.value) return single.value;
  return /^[ab]\d/.test(id) ? id[0]! : '';
});

export const shape = computed<number[]>(() => detail.value?.shape ?? []);
export const plane = computed<Plane>(() => ({ shape: shape.value, ...parseAxes(route.value.query.axes, shape.value) }));
export const at = computed<number[]>(() => parseIndex(route.value.query.at, shape.value));
export const comparable = computed(() => Boolean(detail.value && !detail.value.problem && shape.value.every((size) => size > 0)));

export function moveTo(index: readonly number[]): void {
  adjust({ at: index.some((value) => value !== 0) ? index.join(',') : null });
}
export function moveAxis(axis: number, value: number): void {
  const next = [...at.value];
  next[axis] = clamp(Math.round(value), 0, shape.value[axis]! - 1);
  moveTo(next);
}
export function setAxes(row: number, column: number): void { adjust({ axes: `${row},${column}`, z: null }); }
export const cursor = computed(() => ({ row: plane.value.row < 0 ? 0 : at.value[plane.value.row]!, column: plane.value.column < 0 ? 0 : at.value[plane.value.column]! }));
export const planeSize = computed(() => ({ rows: rowsOf(plane.value), columns: columnsOf(plane.value) }));

// A jump also brings the place into sight in the map.
export const jumped = signal(0);
export function jump(index: readonly number[], what: string): void {
  moveTo(index);
  jumped.value++;
  say(`${what} at [${index.join(', ')}]`);
}

export const worstRank = signal(0);
export async function jumpWorst(next: boolean): Promise<void> {
  const asked = target.value;
  const rank = next ? worstSeen + 1 : 0;
  try {
    const found = await api.worst(workspaceOf(), idOf(), rank);
    if (target.value !== asked) return;
    if (!found.index) { tell('info', 'there is no further element that differs'); return; }
    worstSeen = rank;
    worstRank.value = rank;
    jump(found.index, rank === 0 ? 'worst element' : `number ${rank + 1} of the worst elements`);
  } catch (error) {
    if (next && error instanceof api.ApiError && error.status === 404) tell('info', 'there is no further element that differs');
    else fail(error);
  }
}
export async function jumpFirst(what: 'nan' | 'inf'): Promise<void> {
  const asked = target.value;
  const word = what === 'nan' ? 'NaN' : 'infinity';
  try {
    const found = await api.firstOf(workspaceOf(), idOf(), what);
    if (target.value !== asked) return;
    if (found.index) jump(found.index, `first ${word}`);
  } catch (error) {
    if (error instanceof api.ApiError && error.status === 404) tell('info', `there is no ${word} in ${alone.value ? 'it' : 'either side'}`);
    else fail(error);
  }
}

// How the map looks.
export const show = computed<Show>(() => {
  if (alone.value) return 'a';
  return shows.find((each) => each === route.value.query.view) ?? 'difference';
});
export function setShow(next: Show): void { adjust({ view: next === 'difference' ? null : next, swipe: null }); blinking.value = false; }
// A bright middle would glare in the dark.
export const signedMap = () => colourMap(dark.value ? 'signed-dark' : 'signed');
export const map = computed(() => {
  const chosen = route.value.query.colours;
  if (chosen) return colourMap(chosen);
  return show.value === 'magnitude' ? colourMap('ember') : signedMap();
});
export const swipe = computed(() => { const value = Number(route.value.query.swipe ?? NaN); return alone.value || !Number.isFinite(value) ? -1 : clamp(value, 0, 1); });
export const blinking = signal(false);
export const blinkPhase = signal(false);
effect(() => {
  if (!blinking.value) { blinkPhase.value = false; return undefined; }
  const timer = setInterval(() => { blinkPhase.value = !blinkPhase.value; }, 550);
  return () => clearInterval(timer);
});
export function toggleBlink(): void { if (!alone.value) { blinking.value = !blinking.value; adjust({ swipe: null }); } }

const stat = (side: 'a' | 'b', name: string): number => {
  const d = detail.value;
  const stats = d?.stats ?? (side === 'a' ? d?.stats_a : d?.stats_b);
  const value = stats?.[name];
  if (value !== undefined) return api.number(value as api.Wire);
  // A tensor without partner has no statistics yet; its histogram knows the range.
  const edges = d?.histograms?.edges ?? [];
  return name === 'min' ? api.number(edges[0]) : name === 'max' ? api.number(edges[edges.length - 1]) : NaN;
};
export const metric = (name: string) => api.number(detail.value?.[name] as api.Wire);

const finite = (values: number[]) => values.filter(Number.isFinite);

// The range of colours: of the whole tensor, of nearly all of it, or what a person typed.
export const range = computed<{ low: number; high: number }>(() => {
  const text = route.value.query.range ?? '';
  const typed = /^(-?[\d.e+-]+):(-?[\d.e+-]+)$/i.exec(text);
  if (typed && Number(typed[2]) > Number(typed[1])) return { low: Number(typed[1]), high: Number(typed[2]) };
  const robust = text !== 'full';
  if (show.value === 'difference' || show.value === 'magnitude') {
    const d = detail.value;
    const whole = metric('max_abs');
    const most = api.number(d?.quantiles?.p99_9);
    let high = robust && show.value === 'difference' && most > 0 ? most : whole;
    if (!Number.isFinite(high) || high <= 0) high = finite([most, stat('a', 'std'), 1]).find((value) => value > 0) ?? 1;
    return show.value === 'magnitude' ? { low: 0, high } : { low: -high, high };
  }
  const sides: ('a' | 'b')[] = alone.value ? [alone.value as 'a' | 'b'] : ['a', 'b'];
  const lows = finite(sides.map((side) => stat(side, 'min')));
  const highs = finite(sides.map((side) => stat(side, 'max')));
  let low = lows.length ? Math.min(...lows) : -1;
  let high = highs.length ? Math.max(...highs) : 1;
  if (robust) {
    const deviation = Math.max(...finite(sides.map((side) => stat(side, 'std'))), 0);
    const mean = finite(sides.map((side) => stat(side, 'mean')))[0] ?? 0;
    if (deviation > 0) { low = Math.max(low, mean - 4 * deviation); high = Math.min(high, mean + 4 * deviation); }
  }
  if (map.value.diverging) { const size = Math.max(Math.abs(low), Math.abs(high)) || 1; return { low: -size, high: size }; }
  return high > low ? { low, high } : { low: low - 1, high: high + 1 };
});

// What difference is allowed, for the borders of the grid: what a person typed, else sixteen roundings of the coarser type.
const mantissa: Record<string, number> = { f64: 52, f32: 23, f16: 10, bf16: 7, tf32: 10, f8_e4m3: 3, f8_e5m2: 2 };
export const tolerance = computed<{ rtol: number; atol: number }>(() => {
  const d = detail.value;
  const typed = (route.value.query.tol ?? '').split(',').map(Number);
  if (typed.length === 2 && typed.every((value) => Number.isFinite(value) && value >= 0)) return { rtol: typed[0]!, atol: typed[1]! };
  const bits = [metric('precision_a'), metric('precision_b')].filter((value) => Number.isFinite(value) && value > 0);
  const declared = [d?.dtype_a, d?.dtype_b].map((type) => mantissa[String(type ?? '').toLowerCase()]).filter((value): value is number => value !== undefined);
  const coarse = Math.min(23, ...bits, ...declared);
  const rtol = 16 * 2 ** -(coarse + 1);
  const deviation = stat('a', 'std');
  return { rtol, atol: Number.isFinite(deviation) ? rtol * deviation : 0 };
});
export const allowed = (a: number) => tolerance.value.atol + tolerance.value.rtol * Math.abs(Number.isFinite(a) ? a : 0);

// Gives back what is wrong with the mapping, or nothing.
let mapping: Promise<unknown> = Promise.resolve();
let newest = 0;
let listed = 0;
export function remap(how: api.Remap): Promise<string> {
  // One after the other: what is typed quickly must not be overtaken by what was typed before it.
  const turn = ++newest;
  const asked = target.value;
  const answer = mapping.then(() => (turn === newest ? mapOnce(how, asked) : ''));
  mapping = answer;
  return answer;
}
async function mapOnce(how: api.Remap, asked: string): Promise<string> {
  if (target.value !== asked) return '';
  try {
    const found = await api.remap(workspaceOf(), idOf(), how);
    if (target.value !== asked) return '';
    detail.value = found;
    serial.value++;
    adjust({ z: null });
    // The list has a line about it too, and whoever has gone back to it meanwhile is to see that.
    const here = workspaceOf(), turn = ++listed;
    void api.tensors(here).then((lines) => { if (workspaceOf() === here && turn === listed) list.value = lines; }, fail);
    say(`compared again, relative error ${String(found.rel_l2 ?? 'unknown')}`);
    return '';
  } catch (error) {
    if (error instanceof api.ApiError && error.status >= 400 && error.status < 500) return error.fix ? `${error.message}: ${error.fix}` : error.message;
    fail(error);
    return '';
  }
}
