// Tiles of one plane: fetched when they are looked at, a few at a time, nearest to the middle first; the oldest are let go.
import { tile, type ApiError, type TileData } from '../api';

export const tileSide = 256;

// What a value is besides its number. Numbers that are none become 0 in the texture, since shaders may not know NaN.
export const kindNan = 1, kindInf = 2, kindZero = 4, kindNegative = 8;

export interface Tile {
  level: number; x: number; y: number; rows: number; columns: number; sides: number; sampled: boolean;
  pair: Float32Array; // a, b, a, b, … ; b is a where there is one side
  kind: Uint8Array; // a in the low four bits, b in the high ones
}

export interface TileKey { level: number; x: number; y: number }

function kindOf(value: number): number {
  if (Number.isNaN(value)) return kindNan;
  if (value === 0) return kindZero;
  if (value === Infinity) return kindInf;
  if (value === -Infinity) return kindInf | kindNegative;
  return 0;
}

export function packTile(key: TileKey, data: TileData): Tile {
  const { sides, rows, columns, values } = data;
  const count = rows * columns;
  const pair = new Float32Array(2 * count);
  const kind = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    const a = values[i]!;
    const b = sides === 2 ? values[count + i]! : a;
    const kindA = kindOf(a);
    const kindB = kindOf(b);
    pair[2 * i] = kindA & (kindNan | kindInf) ? 0 : a;
    pair[2 * i + 1] = kindB & (kindNan | kindInf) ? 0 : b;
    kind[i] = kindA | (kindB << 4);
  }
  return { ...key, rows, columns, sides, sampled: data.sampled, pair, kind };
}

export function unpack(tile: Tile, row: number, column: number): { a: number; b: number } {
  const i = row * tile.columns + column;
  const value = (number: number, kind: number) =>
    (kind & kindNan ? NaN : kind & kindInf ? (kind & kindNegative ? -Infinity : Infinity) : number);
  return { a: value(tile.pair[2 * i]!, tile.kind[i]! & 15), b: value(tile.pair[2 * i + 1]!, tile.kind[i]! >> 4) };
}

const mostKept = 240;
const mostAtOnce = 6;

export class TileStore {
  private kept = new Map<string, Tile>();
  private wanted: TileKey[] = [];
  private running = new Map<string, AbortController>();
  private failed = new Set<string>();
  private closed = false;

  constructor(private workspace: string, private tensor: string, private plane: string,
    private arrived: () => void, private trouble: (error: ApiError) => void) {}

  static nameOf(key: TileKey): string { return `${key.level}/${key.x}/${key.y}`; }

  get(key: TileKey): Tile | undefined {
    const name = TileStore.nameOf(key);
    const tile = this.kept.get(name);
    if (tile) { this.kept.delete(name); this.kept.set(name, tile); } // youngest last
    return tile;
  }

  loading(): boolean { return this.running.size > 0 || this.wanted.length > 0; }

  // What is to be seen now, most wanted first. Requests for what is out of sight are dropped.
  want(keys: TileKey[]): void {
    const names = new Set(keys.map(TileStore.nameOf));
    for (const [name, controller] of this.running) if (!names.has(name)) { controller.abort(); this.running.delete(name); }
    this.wanted = keys.filter((key) => { const name = TileStore.nameOf(key); return !this.kept.has(name) && !this.running.has(name) && !this.failed.has(name); });
    this.pump();
  }

  close(): void {
    this.closed = true;
    this.wanted = [];
    for (const controller of this.running.values()) controller.abort();
  }

  private pump(): void {
    while (!this.closed && this.running.size < mostAtOnce && this.wanted.length > 0) void this.load(this.wanted.shift()!);
  }

  private async load(key: TileKey): Promise<void> {
    const name = TileStore.nameOf(key);
    const controller = new AbortController();
    this.running.set(name, controller);
    try {
      const data = await tile(this.workspace, this.tensor, `${this.plane}&level=${key.level}&x=${key.x}&y=${key.y}`, controller.signal);
      if (this.closed) return;
      this.kept.set(name, packTile(key, data));
      while (this.kept.size > mostKept) this.kept.delete(this.kept.keys().next().value!);
      this.arrived();
    } catch (error) {
      if ((error as Error).name !== 'AbortError' && !this.closed) { this.failed.add(name); this.trouble(error as ApiError); }
    } finally {
      if (this.running.get(name) === controller) this.running.delete(name);
      this.pump();
    }
  }
}
