// Colour maps: few anchors, mixed in OKLab so that equal steps look equal. A map is 256 colours, red green blue.

export interface ColourMap { id: string; label: string; diverging: boolean; table: Uint8Array }

type Triple = [number, number, number];

const toLinear = (c: number) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const fromLinear = (c: number) => (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055);

function toLab(hex: string): Triple {
  const [r, g, b] = [1, 3, 5].map((at) => toLinear(parseInt(hex.slice(at, at + 2), 16) / 255)) as Triple;
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function fromLab([lightness, a, b]: Triple): Triple {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

export function mix(anchors: readonly string[], size = 256): Uint8Array {
  const labs = anchors.map(toLab);
  const table = new Uint8Array(size * 3);
  for (let i = 0; i < size; i++) {
    const place = (i / (size - 1)) * (labs.length - 1);
    const low = Math.min(Math.floor(place), labs.length - 2);
    const part = place - low;
    const from = labs[low]!;
    const to = labs[low + 1]!;
    const colour = fromLab([0, 1, 2].map((k) => from[k]! + (to[k]! - from[k]!) * part) as Triple);
    for (let k = 0; k < 3; k++) table[3 * i + k] = Math.round(255 * Math.min(1, Math.max(0, fromLinear(Math.max(0, colour[k]!)))));
  }
  return table;
}

export const colourMaps: readonly ColourMap[] = [
  { id: 'signed', label: 'Blue – orange', diverging: true, table: mix(['#0b2f6b', '#2f74c8', '#a8cdf0', '#f7f5f0', '#f6c08a', '#d9701e', '#7a2e06']) },
  { id: 'signed-dark', label: 'Blue – orange, dark centre', diverging: true, table: mix(['#cfe6ff', '#5aa2f0', '#1f4a86', '#14161a', '#8a4312', '#ee8a35', '#ffe3c2']) },
  { id: 'ember', label: 'Ember', diverging: false, table: mix(['#0d0b1e', '#43206b', '#96306f', '#dd5248', '#f79a3c', '#fdf3b0']) },
  { id: 'sea', label: 'Sea', diverging: false, table: mix(['#2a0a4a', '#2d4a86', '#1f7f8c', '#4fb473', '#d9e03f']) },
  { id: 'grey', label: 'Grey', diverging: false, table: mix(['#000000', '#ffffff']) },
];

export const colourMap = (id: string | undefined) => colourMaps.find((map) => map.id === id) ?? colourMaps[0]!;

// The background of a value among others: blue below zero, orange above, stronger with magnitude. [0, 1] to [0, 1].
export function strength(value: number, largest: number): number {
  if (!Number.isFinite(value) || !(largest > 0)) return 0;
  return Math.min(1, Math.abs(value) / largest) ** 0.6;
}

// How bad a difference is against what was allowed: 0 equal, up to 1 inside the tolerance, 1 to 3 beyond it.
export function severity(difference: number, allowed: number): number {
  if (Number.isNaN(difference)) return 3;
  const size = Math.abs(difference);
  if (size === 0) return 0;
  if (!(allowed > 0)) return 3;
  if (size <= allowed) return Math.max(0.05, size / allowed);
  return Math.min(3, 1 + Math.log10(size / allowed));
}
