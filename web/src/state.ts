// What the page knows: the workspace, its list, what went wrong. Views read these signals and change them through the
// functions here.
import { computed, effect, signal } from '@preact/signals';
import * as api from './api';
import { arrange, readRows, type Choice, type Group, type Row, type Sort } from './rows';
import { adjust, go, keepList, route } from './route';

export interface Notice { key: number; level: 'error' | 'info'; message: string; fix: string }

export const notices = signal<Notice[]>([]);
let noticeKey = 0;

export function tell(level: Notice['level'], message: string, fix = ''): void {
  if (notices.value.some((each) => each.message === message)) return;
  const notice = { key: ++noticeKey, level, message, fix };
  notices.value = [...notices.value.slice(-3), notice];
  if (level === 'info') setTimeout(() => dismiss(notice.key), 5000);
}

export function fail(error: unknown): void {
  if ((error as Error)?.name === 'AbortError') return;
  if (error instanceof api.ApiError) tell('error', error.message, error.fix);
  else tell('error', (error as Error)?.message ?? String(error), 'reload the page; the address keeps the view');
}

export function dismiss(key: number): void { notices.value = notices.value.filter((each) => each.key !== key); }

// A line for screen readers that says what just happened.
export const said = signal('');
export function say(text: string): void { said.value = text; }

// Light and dark.
export type Theme = 'auto' | 'light' | 'dark';
const remembered = (): Theme => { try { const t = localStorage.getItem('tsleuth.theme'); return t === 'light' || t === 'dark' ? t : 'auto'; } catch { return 'auto'; } };
export const theme = signal<Theme>(remembered());
const darkQuery = matchMedia('(prefers-color-scheme: dark)');
const systemDark = signal(darkQuery.matches);
darkQuery.addEventListener('change', (event) => { systemDark.value = event.matches; });
export const dark = computed(() => theme.value === 'dark' || (theme.value === 'auto' && systemDark.value));
effect(() => {
  document.documentElement.dataset.theme = dark.value ? 'dark' : 'light';
  try { if (theme.value === 'auto') localStorage.removeItem('tsleuth.theme'); else localStorage.setItem('tsleuth.theme', theme.value); } catch { /* private mode: the choice lasts as long as the page */ }
});

export const info = signal<api.Workspace | null>(null);
export const list = signal<api.TensorList | null>(null);
export const missing = signal<api.ApiError | null>(null); // why the workspace cannot be shown
export const progress = signal<api.Progress | null>(null);
export const failure = signal<{ message: string; fix: string } | null>(null);

// A side counts as there when it has a name or files.
export const has = (side: api.SideState | null | undefined) => Boolean(side && (side.local || (side.files ? side.files.length > 0 : side.name)));
export const single = computed(() => {
  const l = list.value;
  if (!l) return '';
  const a = Boolean(l.a);
  const b = Boolean(l.b);
  return a && b ? '' : a ? 'a' : b ? 'b' : '';
});
export const rows = computed<Row[]>(() => (list.value ? readRows(list.value, single.value !== '') : []));
// The worst that the checks found of a tensor, of one input alone: '' or its level.
export const healthOf = computed(() => {
  const found = new Map<string, string>();
  for (const { tensor, severity } of list.value?.findings ?? []) if (tensor && severity !== 'note' && found.get(tensor) !== 'fault') found.set(tensor, severity);
  return found;
});
export const rowById = computed(() => new Map(rows.value.filter((row) => row.id !== '').map((row) => [row.id, row])));

export const firstId = computed(() => {
  const first = list.value?.first;
  if (first === null || first === undefined) return '';
  if (typeof first === 'number') return String(first);
  if (typeof first === 'string') return rowById.value.has(first) ? first : rows.value.find((row) => row.name === first)?.id ?? '';
  const id = first.id ?? first.index;
  if (id !== undefined && rowById.value.has(String(id))) return String(id);
  return rows.value.find((row) => row.name === first.name)?.id ?? '';
});

const sorts: readonly Sort[] = ['order', 'name', 'error', 'max', 'cosine', 'size'];
const groups: readonly Group[] = ['layer', 'stage', 'verdict', 'none'];
export const naturalDirection = (sort: Sort) => sort !== 'order' && sort !== 'name';

// The part of the address that concerns the list: moving about in a tensor must not sort ten thousand rows again.
const listQuery = computed(() => JSON.stringify(keepList(route.value.query)));
const readQuery = () => JSON.parse(listQuery.value) as Record<string, string>;

export const choice = computed<Choice>(() => {
  const query = readQuery();
  const sort = sorts.find((each) => each === query.sort) ?? 'order';
  return {
    sort, descending: query.dir ? query.dir === 'down' : naturalDirection(sort),
    group: groups.find((each) => each === query.group) ?? 'layer',
    show: new Set((query.show ?? '').split(',').filter(Boolean)), search: query.q ?? '',
  };
});

// Which groups are shut: names, or all but some names.
export function parseShut(text: string | undefined): { all: boolean; keys: Set<string> } {
  const all = (text ?? '').startsWith('*');
  return { all, keys: new Set((text ?? '').replace(/^\*,?/, '').split(',').filter(Boolean).map(decodeURIComponent)) };
}
export function formatShut(all: boolean, keys: ReadonlySet<string>): string {
  return [...(all ? ['*'] : []), ...[...keys].map(encodeURIComponent)].join(',');
}
const shut = computed(() => parseShut(readQuery().shut));
export const arranged = computed(() => arrange(rows.value, choice.value, (key) => shut.value.all !== shut.value.keys.has(key)));

export function toggleGroup(key: string): void {
  const keys = new Set(shut.value.keys);
  if (!keys.delete(key)) keys.add(key);
  adjust({ shut: formatShut(shut.value.all, keys) });
}
export const shutAll = (all: boolean) => adjust({ shut: all ? '*' : null });

export function open(id: string): void {
  if (id) go({ workspace: route.value.workspace, tensor: id, query: keepList(route.value.query) });
}
export function overview(): void { go({ workspace: route.value.workspace, query: keepList(route.value.query) }); }

// The next tensor in the order that is shown; of those that differ when asked for.
export function step(by: number, differing: boolean): void {
  const shown = arranged.value.shown.filter((row) => row.id !== '');
  const here = shown.findIndex((row) => row.id === route.value.tensor);
  let at = here < 0 ? (by > 0 ? -1 : shown.length) : here;
  for (;;) {
    at += by;
    const row = shown[at];
    if (!row) { say(differing ? 'no further tensor that differs' : 'no further tensor'); return; }
    if (!differing || row.verdict === 'differs') { open(row.id); return; }
  }
}

let unwatch = () => {};
let loaded = '';
let polling: ReturnType<typeof setInterval> | undefined;

export async function load(id: string): Promise<void> {
  unwatch();
  clearInterval(polling);
  if (id !== loaded) { info.value = null; list.value = null; }
  loaded = id;
  missing.value = null;
  failure.value = null;
  progress.value = null;
  if (!id) return;
  try {
    const found = await api.workspace(id);
    if (loaded !== id) return;
    info.value = found;
    if (found.state === 'done') {
      const got = await reopened(id);
      if (loaded === id) { list.value = got; info.value = found; progress.value = null; }
    } else {
      list.value = null;
      if (found.state === 'busy') follow(id, found);
      if (found.state === 'failed') failure.value = { message: found.error?.message ?? 'the comparison failed', fix: found.error?.fix ?? '' };
    }
  } catch (error) {
    if (loaded !== id) return;
    if (error instanceof api.ApiError && error.status === 422 && info.value) { // it was to be made again and cannot be
      info.value = { ...info.value, state: 'failed' };
      failure.value = { message: error.message, fix: error.fix };
    } else if (error instanceof api.ApiError) missing.value = error;
    else fail(error);
  }
}

// The list of a comparison that was made before. One that rested, or that an earlier server made, is made again first:
// what takes longer than a moment shows its progress.
async function reopened(id: string): Promise<api.TensorList> {
  let stop = () => {};
  const timer = setTimeout(() => {
    void api.workspace(id).then((now) => {
      if (loaded !== id || now.state !== 'busy' || list.value) return;
      info.value = now;
      stop = api.watch(id, { progress: (p) => { if (loaded === id) progress.value = p; }, done: () => {}, failed: () => {} });
    }, () => {});
  }, 700);
  try {
    return await api.tensors(id);
  } finally {
    clearTimeout(timer);
    stop();
  }
}

function follow(id: string, found: api.Workspace): void {
  progress.value = found.stage ? { stage: found.stage, done: 0, total: 0, unit: '' } : null;
  const close = api.watch(id, {
    progress: (p) => { progress.value = p; },
    done: () => { if (loaded === id) void load(id); },
    failed: (message, fix) => { if (loaded === id) void load(id).then(() => { failure.value ??= { message, fix }; }); },
  });
  // A stream may break without a word, behind a proxy for one: ask now and then.
  polling = setInterval(() => {
    void api.workspace(id).then((now) => { if (loaded === id && now.state !== 'busy') void load(id); }, () => {});
  }, 4000);
  unwatch = () => { close(); clearInterval(polling); };
}

export async function start(options: api.RunOptions = {}): Promise<void> {
  const id = route.value.workspace;
  try {
    await api.run(id, options);
    list.value = null;
    await load(id);
  } catch (error) { fail(error); }
}

export const version = signal('');
export const searchWanted = signal(0); // grows when the search is to have the focus
export const here = computed(() => route.value.workspace);
export const tensorHere = computed(() => route.value.tensor);
effect(() => { void load(here.value); });
