// How numbers, sizes and names are written.

const nonFinite = (value: number) => (Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '−Inf');

// A few significant digits, no needless zeros; small values keep an exponent, so that nothing prints as 0 that is not.
export function short(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return nonFinite(value);
  if (value === 0) return Object.is(value, -0) ? '−0' : '0';
  const size = Math.abs(value);
  let text: string;
  if (size >= 1e5 || size < 1e-4) {
    text = value.toExponential(digits - 1).replace(/\.?0+e/, 'e').replace('e+', 'e');
  } else {
    text = value.toPrecision(digits);
    if (text.includes('e')) text = String(Number(text));
    else if (text.includes('.')) text = text.replace(/\.?0+$/, '');
  }
  return text.replace('-', '−').replace('e-', 'e−');
}

// Every digit a double needs to read back equal.
export function full(value: number): string {
  if (!Number.isFinite(value)) return nonFinite(value);
  if (Object.is(value, -0)) return '-0';
  return String(value);
}

// As the server wrote it: integers of any size, complex numbers, else every digit.
export function exact(wire: unknown, value: number): string {
  if (Array.isArray(wire)) return `${String(wire[0])} + ${String(wire[1])} i`;
  if (typeof wire === 'string' && /^-?\d+$/.test(wire)) return wire;
  return full(value);
}

// Every digit a float32 needs and no more: 0.1 stays 0.1.
export function fullSingle(value: number): string {
  if (!Number.isFinite(value)) return nonFinite(value);
  for (let digits = 6; digits <= 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === Math.fround(value)) return full(Number(text));
  }
  return full(value);
}

export function bytes(count: number): string {
  if (!Number.isFinite(count)) return '';
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let size = count;
  let unit = 0;
  while (size >= 999.5 && unit < units.length - 1) { size /= 1000; unit++; }
  return `${unit === 0 ? size : Number(size.toPrecision(3))} ${units[unit]}`;
}

export const grouped = (count: number) => count.toLocaleString('en-US').replace(/,/g, ' ');
export const shapeText = (shape: readonly number[] | null | undefined) => (shape ? `[${shape.join(', ')}]` : '');
export const plural = (count: number, word: string) => `${grouped(count)} ${word}${count === 1 ? '' : 's'}`;
export const elements = (shape: readonly number[]) => shape.reduce((product, size) => product * size, 1);

// A name from a file may be of any length: keep both ends, where names differ.
export function middle(name: string, most: number): string {
  const letters = Array.from(name);
  if (letters.length <= most) return name;
  const head = Math.ceil((most - 1) / 2);
  return `${letters.slice(0, head).join('')}…${letters.slice(letters.length - (most - 1 - head)).join('')}`;
}

// Two paths by as little of their ends as tells them apart.
export function shortPaths(paths: readonly (string | null | undefined)[]): string[] {
  const parts = paths.map((path) => (path ?? '').split('/').filter(Boolean));
  const most = Math.max(...parts.map((each) => each.length), 1);
  for (let count = 1; ; count++) {
    const tails = parts.map((each) => each.slice(-count).join('/'));
    const told = tails.filter(Boolean);
    if (new Set(told).size === told.length || count >= most) return tails;
  }
}

// Control and direction characters made visible: a name must not reorder the line it stands in.
export function visible(name: string): string {
  return name.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return '';
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export function ago(when: number | string | undefined, now = Date.now()): string {
  if (when === undefined || when === null) return '';
  const then = typeof when === 'number' ? (when > 1e12 ? when : when * 1000) : Date.parse(when);
  if (!Number.isFinite(then)) return '';
  const seconds = Math.max(0, (now - then) / 1000);
  if (seconds < 90) return 'just now';
  if (seconds < 5400) return `${Math.round(seconds / 60)} minutes ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} hours ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}
