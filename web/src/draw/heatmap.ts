// The heat map: one view of a plane, its tiles, its painter, the rulers and the printed values, and the hand on it.
import type { ApiError } from '../api';
import { short } from '../format';
import { clamp, levelFor } from '../plane';
import { GlPainter } from './gl';
import { position, type Look, type Painter } from './paint';
import { RasterPainter } from './raster';
import { TileStore, tileSide, unpack, type TileKey } from './tiles';

export interface View { x: number; y: number; sx: number; sy: number } // the middle in elements, pixels per element
export interface Probe { row: number; column: number; rows: number; columns: number; a: number; b: number; sides: number }
export interface Plane { workspace: string; tensor: string; version: number; query: string; rows: number; columns: number }

export interface Reports {
  hover(probe: Probe | null): void;
  pick(row: number, column: number): void;
  moved(view: View | null): void; // null: everything is in sight
  swiped(fraction: number): void;
  trouble(error: ApiError): void;
  // stale: the picture is of the plane before; sampled: not every element was looked at
  busy(loading: boolean, stale: boolean, sampled: boolean): void;
}

export const rulerLeft = 46;
export const rulerTop = 20;
const largestCell = 120;
const printWidth = 46;
const printHeight = 17;

// The whole plane in sight; a long thin one is stretched, up to rows of 24 pixels.
export function fit(rows: number, columns: number, width: number, height: number): View {
  let sx = width / Math.max(1, columns);
  let sy = height / Math.max(1, rows);
  if (sx > sy) sx = Math.min(sx, Math.max(sy, 24));
  else sy = Math.min(sy, Math.max(sx, 24));
  return { x: columns / 2, y: rows / 2, sx: Math.min(sx, largestCell), sy: Math.min(sy, largestCell) };
}

// Round steps for a ruler: 1, 2, 5, 10, …, at least `apart` pixels between labels.
export function rulerStep(scale: number, apart: number): number {
  const least = apart / scale;
  let step = 1;
  while (step < least) {
    if (step * 2 >= least) return step * 2;
    if (step * 5 >= least) return step * 5;
    step *= 10;
  }
  return step;
}

export class HeatMap {
  private painter: Painter;
  private store: TileStore | null = null;
  private previous: TileStore | null = null; // of the plane before, shown until the new one is there
  private plane: Plane | null = null;
  private look: Look | null = null;
  private view: View = { x: 0, y: 0, sx: 1, sy: 1 };
  private swipe = -1; // 0 to 1, or off
  private cursor: { row: number; column: number } | null = null;
  private frame = 0;
  private width = 0;
  private height = 0;
  private pointers = new Map<number, { x: number; y: number }>();
  private dragged = 0;
  private swiping = false;
  private observer: ResizeObserver;
  private waiting: View | null = null;
  private fitted = true;

  constructor(private box: HTMLElement, private picture: HTMLCanvasElement, private overlay: HTMLCanvasElement, private report: Reports) {
    this.painter = GlPainter.make(picture) ?? new RasterPainter(this.replaceCanvas().getContext('2d')!);
    this.picture.addEventListener('webglcontextlost', (event) => {
      event.preventDefault();
      this.painter = new RasterPainter(this.replaceCanvas().getContext('2d')!);
      this.resize();
    });
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(box);
    box.addEventListener('pointerdown', this.down);
    box.addEventListener('pointermove', this.move);
    box.addEventListener('pointerup', this.up);
    box.addEventListener('pointercancel', this.up);
    box.addEventListener('pointerleave', this.leave);
    box.addEventListener('wheel', this.wheel, { passive: false });
    box.addEventListener('dblclick', this.twice);
  }

  painterName(): string { return this.painter.name; }

  // A canvas that once gave a WebGL context gives no other one.
  private replaceCanvas(): HTMLCanvasElement {
    const fresh = this.picture.cloneNode(false) as HTMLCanvasElement;
    this.picture.replaceWith(fresh);
    this.picture = fresh;
    return fresh;
  }

  close(): void {
    cancelAnimationFrame(this.frame);
    this.observer.disconnect();
    this.store?.close();
    this.painter.close();
  }

  setPlane(plane: Plane, view: View | null): void {
    const same = this.plane !== null && this.plane.rows === plane.rows && this.plane.columns === plane.columns && this.plane.tensor === plane.tensor;
    this.plane = plane;
    this.store?.close();
    this.previous = same ? this.store : null;
    if (!same) this.painter.forget();
    this.store = new TileStore(plane.workspace, plane.tensor, plane.query, () => this.redraw(), (error) => this.report.trouble(error));
    if (view) { this.waiting = view; this.fitted = false; } else if (!same) { this.waiting = null; this.fitted = true; }
    this.arrange();
    this.redraw();
  }

  private arrange(): void {
    if (!this.plane || this.width === 0) return;
    if (this.waiting) { this.view = this.waiting; this.waiting = null; }
    else if (this.fitted) this.view = fit(this.plane.rows, this.plane.columns, this.width, this.height);
    this.hold();
  }

  setLook(look: Look, swipe: number): void { this.look = look; this.swipe = swipe; this.redraw(); }
  setCursor(row: number, column: number): void { this.cursor = { row, column }; this.redraw(); }

  fitAll(): void { this.fitted = true; this.arrange(); this.changed(); }
  zoom(factor: number): void { this.zoomAt(factor, this.width / 2, this.height / 2); }

  // Brings an element into sight, large enough to be read when asked for.
  show(row: number, column: number, near: boolean): void {
    if (!this.plane || this.width <= 1) return;
    const { view } = this;
    if (near && view.sx < 60) {
      const factor = 60 / view.sx;
      view.sx *= factor;
      view.sy = Math.min(Math.max(view.sy * factor, 22), 40);
      this.fitted = false;
    }
    const left = (column - view.x) * view.sx + this.width / 2;
    const top = (row - view.y) * view.sy + this.height / 2;
    if ((near && !this.fitted) || left < 0 || top < 0 || left > this.width - view.sx || top > this.height - view.sy) {
      view.x = column + 0.5;
      view.y = row + 0.5;
    }
    this.hold();
    this.changed();
  }

  // Which elements are in sight.
  visible(): { row: number; column: number; rows: number; columns: number } | null {
    if (!this.plane || this.width === 0) return null;
    const { x, y, sx, sy } = this.view;
    const column = clamp(Math.floor(x - this.width / 2 / sx), 0, this.plane.columns - 1);
    const row = clamp(Math.floor(y - this.height / 2 / sy), 0, this.plane.rows - 1);
    return {
      row, column,
      rows: clamp(Math.ceil(y + this.height / 2 / sy), row + 1, this.plane.rows) - row,
      columns: clamp(Math.ceil(x + this.width / 2 / sx), column + 1, this.plane.columns) - column,
    };
  }

  // The picture as it is seen, rulers and values included.
  async png(background: string): Promise<Blob> {
    this.draw();
    const canvas = document.createElement('canvas');
    canvas.width = this.overlay.width;
    canvas.height = this.overlay.height;
    const context = canvas.getContext('2d')!;
    const ratio = devicePixelRatio || 1;
    context.fillStyle = background;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(this.picture, Math.round(rulerLeft * ratio), Math.round(rulerTop * ratio));
    context.drawImage(this.overlay, 0, 0);
    return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('the browser made no picture'))), 'image/png'));
  }

  private resize(): void {
    const ratio = devicePixelRatio || 1;
    const width = Math.max(1, this.box.clientWidth - rulerLeft);
    const height = Math.max(1, this.box.clientHeight - rulerTop);
    this.width = width;
    this.height = height;
    this.picture.width = Math.round(width * ratio);
    this.picture.height = Math.round(height * ratio);
    this.overlay.width = Math.round((width + rulerLeft) * ratio);
    this.overlay.height = Math.round((height + rulerTop) * ratio);
    this.arrange();
    this.draw();
  }

  redraw(): void {
    if (this.frame) return;
    delete this.box.dataset.drawn;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  // Keeps scales sensible and the plane in sight.
  private hold(): void {
    if (!this.plane) return;
    const { view, plane } = this;
    const whole = fit(plane.rows, plane.columns, this.width, this.height);
    const shrink = Math.max(1, Math.min(whole.sx / view.sx, whole.sy / view.sy));
    const grow = Math.min(1, largestCell / Math.min(view.sx, view.sy), (4 * largestCell) / Math.max(view.sx, view.sy));
    view.sx *= shrink * grow;
    view.sy *= shrink * grow;
    const middle = (at: number, count: number, scale: number, room: number) => {
      const half = room / 2 / scale;
      return count <= 2 * half ? count / 2 : clamp(at, half, count - half);
    };
    view.x = middle(view.x, plane.columns, view.sx, this.width);
    view.y = middle(view.y, plane.rows, view.sy, this.height);
  }

  private changed(): void { this.redraw(); if (this.width > 1) this.report.moved(this.fitted ? null : { ...this.view }); }

  private draw(): void {
    const { plane, look, store, view } = this;
    if (!plane || !look || !store || this.width <= 1) return;
    const ratio = devicePixelRatio || 1;
    const seen = this.visible()!;
    const sx = view.sx * ratio;
    const sy = view.sy * ratio;
    const level = this.painter.folds
      ? levelFor(sx, sy, seen.rows, seen.columns, 40)
      : levelFor(Math.min(sx, sy), Math.min(sx, sy), seen.rows, seen.columns, 40);
    const top = levelFor(1e-9, 1e-9, plane.rows, plane.columns, 4);
    let coarsest = 0;
    while (coarsest < top && Math.max(plane.rows, plane.columns) > tileSide * 2 ** coarsest) coarsest++;
    const used = Math.min(level, coarsest);
    const keys = this.keysOf(used, seen);
    const wanted: TileKey[] = used === coarsest ? keys : [...this.keysOf(coarsest, seen), ...keys];
    store.want(wanted);

    let stale = false;
    let sampled = false;
    this.painter.begin(this.picture.width, this.picture.height);
    const shown: Look = { ...look, swipe: this.swipe < 0 ? -1 : this.swipe * this.picture.width };
    for (let at = coarsest; at >= used; at--) {
      for (const key of this.keysOf(at, seen)) {
        const own = store.get(key);
        const tile = own ?? this.previous?.get(key);
        if (!tile) continue;
        if (!own) stale = true;
        if (tile.sampled && at === used) sampled = true;
        const side = tileSide * 2 ** at;
        const columns = Math.min((key.x + 1) * side, plane.columns) - key.x * side;
        const rows = Math.min((key.y + 1) * side, plane.rows) - key.y * side;
        this.painter.draw({
          tile,
          left: (key.x * side - view.x) * sx + this.picture.width / 2,
          top: (key.y * side - view.y) * sy + this.picture.height / 2,
          width: columns * sx, height: rows * sy, across: columns / 2 ** at, down: rows / 2 ** at,
        }, shown);
      }
    }
    this.painter.end();
    if (!store.loading()) this.previous = null;
    // For those who wait for the whole picture.
    if (store.loading()) delete this.box.dataset.drawn;
    else this.box.dataset.drawn = '1';
    this.report.busy(store.loading(), stale, sampled);
    this.drawOverlay(seen, shown);
  }

  private keysOf(level: number, seen: { row: number; column: number; rows: number; columns: number }): TileKey[] {
    const side = tileSide * 2 ** level;
    const keys: TileKey[] = [];
    const lastX = Math.floor((seen.column + seen.columns - 1) / side);
    const lastY = Math.floor((seen.row + seen.rows - 1) / side);
    for (let y = Math.floor(seen.row / side); y <= lastY; y++) for (let x = Math.floor(seen.column / side); x <= lastX; x++) keys.push({ level, x, y });
    const far = (key: TileKey) => Math.abs((key.x + 0.5) * side - this.view.x) + Math.abs((key.y + 0.5) * side - this.view.y);
    return keys.sort((p, q) => far(p) - far(q));
  }

  private drawOverlay(seen: { row: number; column: number; rows: number; columns: number }, look: Look): void {
    const context = this.overlay.getContext('2d')!;
    const ratio = devicePixelRatio || 1;
    const { view, width, height } = this;
    const style = getComputedStyle(this.box);
    const ink = style.getPropertyValue('--text-2').trim() || '#666';
    const accent = style.getPropertyValue('--accent').trim() || '#06c';
    const surface = style.getPropertyValue('--surface').trim() || '#fff';
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width + rulerLeft, height + rulerTop);
    const left = (column: number) => rulerLeft + (column - view.x) * view.sx + width / 2;
    const top = (row: number) => rulerTop + (row - view.y) * view.sy + height / 2;
    const font = style.fontFamily;

    context.save();
    context.beginPath();
    context.rect(rulerLeft, rulerTop, width, height);
    context.clip();
    if (view.sx >= 10 && view.sy >= 10) {
      context.strokeStyle = 'rgba(128,128,128,0.28)';
      context.lineWidth = 1;
      context.beginPath();
      for (let column = seen.column; column <= seen.column + seen.columns; column++) { context.moveTo(Math.round(left(column)) + 0.5, top(seen.row)); context.lineTo(Math.round(left(column)) + 0.5, top(seen.row + seen.rows)); }
      for (let row = seen.row; row <= seen.row + seen.rows; row++) { context.moveTo(left(seen.column), Math.round(top(row)) + 0.5); context.lineTo(left(seen.column + seen.columns), Math.round(top(row)) + 0.5); }
      context.stroke();
    }
    if (view.sx >= printWidth && view.sy >= printHeight) {
      context.font = `11px ${font}`;
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      for (let row = seen.row; row < seen.row + seen.rows; row++) {
        for (let column = seen.column; column < seen.column + seen.columns; column++) {
          const value = this.valueAt(row, column);
          if (!value) continue;
          const middleX = left(column + 0.5);
          const what = look.swipe >= 0 ? ((middleX - rulerLeft) * ratio < look.swipe ? 'a' : 'b') : look.show;
          const number = what === 'a' ? value.a : what === 'b' ? value.b : Object.is(value.a, value.b) ? 0 : value.b - value.a;
          const place = 3 * Math.round(255 * (Number.isFinite(number) ? position(number, { ...look, show: what }) : 0));
          const light = Number.isFinite(number) ? (look.map.table[place]! * 2 + look.map.table[place + 1]! * 5 + look.map.table[place + 2]!) / 8 : 0;
          context.fillStyle = light > 130 ? '#15171a' : '#ffffff';
          context.fillText(short(what === 'magnitude' ? Math.abs(number) : number, view.sx < 72 ? 3 : 4), middleX, top(row + 0.5) + 0.5, view.sx - 4);
        }
      }
    }
    if (this.cursor) {
      const wide = Math.max(view.sx, 5);
      const high = Math.max(view.sy, 5);
      const x = left(this.cursor.column + 0.5) - wide / 2;
      const y = top(this.cursor.row + 0.5) - high / 2;
      context.lineWidth = 4;
      context.strokeStyle = surface;
      context.strokeRect(x - 1, y - 1, wide + 2, high + 2);
      context.lineWidth = 2;
      context.strokeStyle = accent;
      context.strokeRect(x - 1, y - 1, wide + 2, high + 2);
    }
    if (this.swipe >= 0) {
      const x = rulerLeft + this.swipe * width;
      context.fillStyle = surface;
      context.fillRect(x - 2.5, rulerTop, 5, height);
      context.fillStyle = accent;
      context.fillRect(x - 1, rulerTop, 2, height);
      context.beginPath();
      context.arc(x, rulerTop + height / 2, 9, 0, 2 * Math.PI);
      context.fill();
      context.fillStyle = surface;
      context.font = `11px ${font}`;
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText('↔', x, rulerTop + height / 2 + 0.5);
    }
    context.restore();

    context.fillStyle = ink;
    context.font = `10.5px ${font}`;
    context.textBaseline = 'alphabetic';
    context.textAlign = 'center';
    const digits = String(seen.column + seen.columns).length;
    const stepX = rulerStep(view.sx, Math.max(28, digits * 8 + 10));
    for (let column = Math.ceil(seen.column / stepX) * stepX; column < seen.column + seen.columns; column += stepX) {
      const x = left(column + 0.5);
      if (x < rulerLeft || x > rulerLeft + width) continue;
      context.fillText(String(column), clamp(x, rulerLeft + 3, rulerLeft + width - digits * 3.2 - 1), rulerTop - 7);
      context.fillRect(Math.round(x), rulerTop - 4, 1, 3);
    }
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    const stepY = rulerStep(view.sy, 16);
    for (let row = Math.ceil(seen.row / stepY) * stepY; row < seen.row + seen.rows; row += stepY) {
      const y = top(row + 0.5);
      if (y < rulerTop || y > rulerTop + height) continue;
      context.fillText(String(row), rulerLeft - 7, y);
      context.fillRect(rulerLeft - 4, Math.round(y), 3, 1);
    }
  }

  private valueAt(row: number, column: number): { a: number; b: number } | null {
    const tile = this.store?.get({ level: 0, x: Math.floor(column / tileSide), y: Math.floor(row / tileSide) });
    return tile ? unpack(tile, row % tileSide, column % tileSide) : null;
  }

  // What stands under a point: an element, or the worst of those that share a scalar.
  private probe(x: number, y: number): Probe | null {
    if (!this.plane || !this.store) return null;
    const column = Math.floor((x - this.width / 2) / this.view.sx + this.view.x);
    const row = Math.floor((y - this.height / 2) / this.view.sy + this.view.y);
    if (row < 0 || column < 0 || row >= this.plane.rows || column >= this.plane.columns) return null;
    for (let level = 0; level < 40; level++) {
      const side = tileSide * 2 ** level;
      const tile = this.store.get({ level, x: Math.floor(column / side), y: Math.floor(row / side) });
      if (!tile) continue;
      const span = 2 ** level;
      const value = unpack(tile, Math.floor((row % side) / span), Math.floor((column % side) / span));
      const first = { row: Math.floor(row / span) * span, column: Math.floor(column / span) * span };
      return { ...first, rows: Math.min(span, this.plane.rows - first.row), columns: Math.min(span, this.plane.columns - first.column), ...value, sides: tile.sides };
    }
    return { row, column, rows: 1, columns: 1, a: NaN, b: NaN, sides: 0 };
  }

  private place(event: PointerEvent | WheelEvent | MouseEvent): { x: number; y: number } {
    const box = this.box.getBoundingClientRect();
    return { x: event.clientX - box.left - rulerLeft, y: event.clientY - box.top - rulerTop };
  }

  private zoomAt(factor: number, x: number, y: number): void {
    const { view } = this;
    const column = (x - this.width / 2) / view.sx + view.x;
    const row = (y - this.height / 2) / view.sy + view.y;
    view.sx *= factor;
    view.sy *= factor;
    // Close up, stretched cells become square again so that values fit.
    if (factor > 1 && Math.max(view.sx, view.sy) > 40) { const even = Math.max(view.sx, view.sy); view.sx = Math.max(view.sx, even * 0.9); view.sy = Math.max(view.sy, even * 0.3); }
    this.fitted = false;
    this.hold();
    view.x = column - (x - this.width / 2) / view.sx;
    view.y = row - (y - this.height / 2) / view.sy;
    this.hold();
    this.changed();
  }

  private down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const at = this.place(event);
    this.box.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, at);
    this.dragged = 0;
    this.swiping = this.swipe >= 0 && Math.abs(at.x - this.swipe * this.width) < 14;
  };

  private move = (event: PointerEvent): void => {
    const at = this.place(event);
    const before = this.pointers.get(event.pointerId);
    if (before) {
      if (this.swiping) {
        this.swipe = clamp(at.x / this.width, 0, 1);
        this.dragged = 99;
        this.report.swiped(this.swipe);
        this.redraw();
      } else if (this.pointers.size === 2) {
        const other = [...this.pointers].find(([id]) => id !== event.pointerId)![1];
        const distance = (p: { x: number; y: number }) => Math.max(8, Math.hypot(p.x - other.x, p.y - other.y));
        this.zoomAt(distance(at) / distance(before), (at.x + other.x) / 2, (at.y + other.y) / 2);
        this.dragged = 99;
      } else {
        this.dragged += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
        if (this.dragged > 4) {
          this.view.x -= (at.x - before.x) / this.view.sx;
          this.view.y -= (at.y - before.y) / this.view.sy;
          this.fitted = false;
          this.hold();
          this.changed();
        }
      }
      this.pointers.set(event.pointerId, at);
    }
    this.report.hover(this.probe(at.x, at.y));
  };

  private up = (event: PointerEvent): void => {
    const at = this.place(event);
    const was = this.pointers.delete(event.pointerId);
    if (was && this.dragged <= 4 && event.type === 'pointerup') {
      const probe = this.probe(at.x, at.y);
      if (probe) {
        const column = Math.floor((at.x - this.width / 2) / this.view.sx + this.view.x);
        const row = Math.floor((at.y - this.height / 2) / this.view.sy + this.view.y);
        this.report.pick(row, column);
      }
    }
    this.swiping = false;
  };

  private leave = (): void => this.report.hover(null);

  // The wheel scrolls the page until the map has been clicked: a page that cannot be scrolled past is a trap.
  private wheel = (event: WheelEvent): void => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.box) return;
    event.preventDefault();
    const at = this.place(event);
    this.zoomAt(Math.exp(-clamp(event.deltaY * (event.deltaMode === 1 ? 16 : 1), -120, 120) / 240), at.x, at.y);
  };

  private twice = (event: MouseEvent): void => { const at = this.place(event); this.zoomAt(event.shiftKey ? 0.5 : 2, at.x, at.y); };
}
