// The painter for browsers without WebGL2: colours tiles in JavaScript and lets the 2D canvas scale them.
import { infColour, nanColour, negativeInfColour, position, zeroColour, type Look, type Painter, type Placed } from './paint';
import { kindInf, kindNan, kindNegative, kindZero, type Tile } from './tiles';

export function colourTile(tile: Tile, look: Look, out: Uint8ClampedArray): void {
  const table = look.map.table;
  for (let i = 0; i < tile.kind.length; i++) {
    const a = tile.kind[i]! & 15;
    const b = tile.kind[i]! >> 4;
    const single = look.show === 'a' ? a : look.show === 'b' ? b : (a | b) & (kindNan | kindInf);
    let colour: readonly number[];
    if (single & kindNan) colour = nanColour;
    else if (single & kindInf) {
      const negative = look.show === 'a' ? a & kindNegative : look.show === 'b' ? b & kindNegative : a & kindInf ? !(a & kindNegative) : b & kindNegative;
      colour = negative ? negativeInfColour : infColour;
    } else {
      const first = tile.pair[2 * i]!;
      const second = tile.pair[2 * i + 1]!;
      const value = look.show === 'a' ? first : look.show === 'b' ? second : second - first;
      const zero = look.show === 'a' ? a & kindZero : look.show === 'b' ? b & kindZero : value === 0;
      const place = 3 * Math.round(255 * position(value, look));
      colour = zero && look.zeros ? [0, 1, 2].map((k) => (table[place + k]! + zeroColour[k]!) / 2) : [table[place]!, table[place + 1]!, table[place + 2]!];
    }
    out[4 * i] = colour[0]!;
    out[4 * i + 1] = colour[1]!;
    out[4 * i + 2] = colour[2]!;
    out[4 * i + 3] = 255;
  }
}

export class RasterPainter implements Painter {
  readonly name = 'canvas';
  readonly folds = false;
  private pictures = new Map<string, HTMLCanvasElement>();

  constructor(private context: CanvasRenderingContext2D) {}

  begin(width: number, height: number): void {
    this.context.clearRect(0, 0, width, height);
    this.context.imageSmoothingEnabled = false;
  }

  private picture(tile: Tile, look: Look): HTMLCanvasElement {
    const key = [tile.level, tile.x, tile.y, look.show, look.map.id, look.low, look.high, look.zeros].join();
    let canvas = this.pictures.get(key);
    if (!canvas) {
      canvas = document.createElement('canvas');
      canvas.width = tile.columns;
      canvas.height = tile.rows;
      const context = canvas.getContext('2d')!;
      const image = context.createImageData(tile.columns, tile.rows);
      colourTile(tile, look, image.data);
      context.putImageData(image, 0, 0);
      this.pictures.set(key, canvas);
      if (this.pictures.size > 120) this.pictures.delete(this.pictures.keys().next().value!);
    }
    return canvas;
  }

  draw({ tile, left, top, width, height, across, down }: Placed, look: Look): void {
    if (look.swipe < 0) { this.context.drawImage(this.picture(tile, look), 0, 0, across, down, left, top, width, height); return; }
    for (const show of ['a', 'b'] as const) {
      this.context.save();
      this.context.beginPath();
      if (show === 'a') this.context.rect(0, 0, look.swipe, this.context.canvas.height);
      else this.context.rect(look.swipe, 0, this.context.canvas.width, this.context.canvas.height);
      this.context.clip();
      this.context.drawImage(this.picture(tile, { ...look, show }), 0, 0, across, down, left, top, width, height);
      this.context.restore();
    }
  }

  end(): void {}
  forget(): void { this.pictures.clear(); }
  close(): void { this.forget(); }
}
