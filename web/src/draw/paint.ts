// What both painters agree on: what is shown of a pair, in which colours.
import type { ColourMap } from '../colour';
import type { Tile } from './tiles';

export type Show = 'a' | 'b' | 'difference' | 'magnitude';
export const shows: readonly Show[] = ['a', 'b', 'difference', 'magnitude'];

export interface Look {
  show: Show; map: ColourMap;
  low: number; high: number; // of a, b and difference; magnitude is shown on a log scale from high / 10^decades to high
  swipe: number; // pixels from the left: a before it, b behind it; negative: off
  zeros: boolean; // mark what is exactly zero
}

export const decades = 6;

// A tile on the canvas, in device pixels.
// `across` and `down`: how many of its scalars that is; the last one may stand for fewer elements than the others.
export interface Placed { tile: Tile; left: number; top: number; width: number; height: number; across: number; down: number }

export interface Painter {
  readonly name: string;
  readonly folds: boolean; // can take the worst of many scalars in one pixel
  begin(width: number, height: number): void;
  draw(placed: Placed, look: Look): void;
  end(): void;
  forget(): void; // the tiles of an old plane
  close(): void;
}

export const nanColour = [255, 0, 190] as const;
export const infColour = [255, 214, 10] as const;
export const negativeInfColour = [0, 214, 255] as const;
export const zeroColour = [150, 152, 158] as const;

// Where on the colour map a finite value stands, 0 to 1.
export function position(value: number, look: Look): number {
  if (look.show === 'magnitude') {
    if (value === 0 || !(look.high > 0)) return 0;
    return Math.min(1, Math.max(0, 1 + Math.log10(Math.abs(value) / look.high) / decades));
  }
  if (!(look.high > look.low)) return 0.5;
  return Math.min(1, Math.max(0, (value - look.low) / (look.high - look.low)));
}
