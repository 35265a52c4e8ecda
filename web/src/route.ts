// The address of a view. Everything a reload must keep is in location.hash:
//   #/                                     start
//   #/w/ID?sort=error&group=layer&…        a workspace and how its list is shown
//   #/w/ID/t/12?axes=0,1&at=0,3&z=…&…      one tensor of it
import { signal } from '@preact/signals';

export interface Route { workspace: string; tensor: string; query: Readonly<Record<string, string>> }

export function parseHash(hash: string): Route {
  const text = hash.replace(/^#/, '');
  const question = text.indexOf('?');
  const path = question < 0 ? text : text.slice(0, question);
  const query: Record<string, string> = {};
  if (question >= 0) for (const [key, value] of new URLSearchParams(text.slice(question + 1))) query[key] = value;
  const decode = (part: string) => { try { return decodeURIComponent(part); } catch { return part; } };
  const parts = path.split('/').filter(Boolean).map(decode);
  if (parts[0] !== 'w' || !parts[1]) return { workspace: '', tensor: '', query };
  return { workspace: parts[1], tensor: parts[2] === 't' ? parts[3] ?? '' : '', query };
}

export function formatHash(to: Route): string {
  let path = '#/';
  if (to.workspace) path += `w/${encodeURIComponent(to.workspace)}`;
  if (to.workspace && to.tensor) path += `/t/${encodeURIComponent(to.tensor)}`;
  const pairs = Object.entries(to.query).filter(([, value]) => value !== '');
  // Commas and colons are legal in a fragment and keep the address readable.
  const query = new URLSearchParams(pairs).toString().replace(/%2C/g, ',').replace(/%3A/g, ':');
  return query ? `${path}?${query}` : path;
}

export const route = signal<Route>({ workspace: '', tensor: '', query: {} });

// What the list shows stays when a tensor is opened and left again; what a tensor shows does not.
export const listKeys = ['sort', 'dir', 'group', 'show', 'q', 'shut'];

export function keepList(query: Readonly<Record<string, string>>): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const key of listKeys) if (query[key]) kept[key] = query[key]!;
  return kept;
}

export function go(to: { workspace?: string; tensor?: string; query?: Record<string, string> }): void {
  const next = { workspace: to.workspace ?? '', tensor: to.tensor ?? '', query: to.query ?? {} };
  clearTimeout(pending);
  history.pushState(null, '', formatHash(next));
  known = location.hash;
  route.value = next;
}

// Changes the view in place: no new entry in the history.
export function adjust(changes: Record<string, string | null>): void {
  const query: Record<string, string> = { ...route.value.query };
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === '') delete query[key];
    else query[key] = value;
  }
  route.value = { ...route.value, query };
  write();
}

// Browsers refuse more than some hundred history calls in half a minute; dragging makes more.
let pending: ReturnType<typeof setTimeout> | undefined;
let known = ''; // the address as it was last read or written: another one is news that must not be overwritten
function write(): void {
  clearTimeout(pending);
  pending = setTimeout(settle, 150);
}
function settle(): void {
  if (location.hash !== known) return;
  history.replaceState(null, '', formatHash(route.value));
  known = location.hash;
}

export function follow(): void {
  const read = () => { clearTimeout(pending); known = location.hash; route.value = parseHash(known); };
  addEventListener('hashchange', read);
  addEventListener('popstate', read);
  addEventListener('pagehide', settle);
  read();
}
