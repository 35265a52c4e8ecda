import assert from 'node:assert/strict';
import test from 'node:test';
import { mix, severity, strength } from '../src/colour';
import { fit, rulerStep } from '../src/draw/heatmap';
import { position } from '../src/draw/paint';
import { colourTile } from '../src/draw/raster';
import { packTile, unpack } from '../src/draw/tiles';
import { blockOffset, defaultAxes, levelFor, parseAxes, parseIndex, readIndex, windowAround } from '../src/plane';
import { formatHash, keepList, parseHash } from '../src/route';
import { colourMaps } from '../src/colour';

test('axes that are worth looking at', () => {
  assert.deepEqual(defaultAxes([]), { row: -1, column: -1 });
  assert.deepEqual(defaultAxes([5]), { row: -1, column: 0 });
  assert.deepEqual(defaultAxes([9, 4, 16]), { row: 1, column: 2 });
  assert.deepEqual(defaultAxes([9, 4, 1]), { row: 0, column: 1 });
  assert.deepEqual(defaultAxes([1, 7, 1]), { row: 0, column: 1 });
  assert.deepEqual(defaultAxes([7, 1]), { row: 1, column: 0 });
  assert.deepEqual(parseAxes('2,0', [3, 4, 5]), { row: 2, column: 0 });
  for (const bad of ['0,0', '0,3', '1', 'x,y', '-1,0']) assert.deepEqual(parseAxes(bad, [3, 4, 5]), { row: 1, column: 2 });
});

test('coordinates from the address stay inside, those typed are explained', () => {
  assert.deepEqual(parseIndex('9,-4,2', [3, 4, 5]), [2, 0, 2]);
  assert.deepEqual(parseIndex(undefined, [3, 4]), [0, 0]);
  assert.deepEqual(readIndex('[1, 2, -1]', [3, 4, 5]), [1, 2, 4]);
  assert.deepEqual(readIndex('59', [3, 4, 5]), [2, 3, 4]);
  assert.match(String(readIndex('60', [3, 4, 5])), /60 is outside/);
  assert.match(String(readIndex('1,9,0', [3, 4, 5])), /axis 1/);
  assert.match(String(readIndex('1,2', [3, 4, 5])), /2 numbers for 3 axes/);
  assert.match(String(readIndex('1,a,0', [3, 4, 5])), /not a whole number/);
});

test('the window has the place in its middle and stays inside', () => {
  const plane = { shape: [3, 100, 50], row: 1, column: 2 };
  assert.deepEqual(windowAround(plane, [2, 50, 20], 9, 10), { start: [2, 46, 16], count: [1, 9, 10] });
  assert.deepEqual(windowAround(plane, [0, 0, 49], 9, 10), { start: [0, 0, 40], count: [1, 9, 10] });
  assert.deepEqual(windowAround({ shape: [5], row: -1, column: 0 }, [4], 9, 10), { start: [0], count: [5] });
  assert.deepEqual(windowAround({ shape: [], row: -1, column: -1 }, [], 9, 10), { start: [], count: [] });
});

test('values of a block are found whichever axis runs down', () => {
  // block [2 rows of axis 0, 3 columns of axis 2]: the tensor's order has axis 0 outermost
  assert.equal(blockOffset({ shape: [4, 1, 5], row: 0, column: 2 }, [2, 1, 3], 1, 2), 5);
  assert.equal(blockOffset({ shape: [4, 1, 5], row: 2, column: 0 }, [2, 1, 3], 2, 1), 5);
  assert.equal(blockOffset({ shape: [5], row: -1, column: 0 }, [5], 0, 3), 3);
});

test('levels: no scalar smaller than a pixel, unless the drawing folds it', () => {
  assert.equal(levelFor(1, 1, 500, 500, 40), 0);
  assert.equal(levelFor(0.3, 0.3, 500, 500, 40), 2);
  assert.equal(levelFor(0.25, 0.25, 500, 500, 40), 2);
  assert.equal(levelFor(0.44, 24, 9, 2048, 40), 0);
  assert.ok(levelFor(0.006, 24, 9, 151936, 40) <= 5);
  assert.ok((Math.ceil(151936 / 2 ** levelFor(0.006, 24, 9, 151936, 40) / 256) + 1) * 2 <= 40);
});

test('the whole plane fits', () => {
  for (const [rows, columns] of [[64, 64], [6, 64], [9, 151936], [4096, 3], [1, 1]] as const) {
    const view = fit(rows, columns, 900, 440);
    assert.ok(rows * view.sy <= 440.001 && columns * view.sx <= 900.001, `${rows} x ${columns}`);
  }
  assert.deepEqual([rulerStep(60, 30), rulerStep(14, 30), rulerStep(1, 30), rulerStep(0.01, 30)], [1, 5, 50, 5000]);
});

test('tiles keep NaN, infinities and zeros', () => {
  const values = [1, NaN, Infinity, -Infinity, 0, -2, 1.5, NaN, 3, -Infinity, 0, -2];
  const tile = packTile({ level: 0, x: 0, y: 0 }, { sides: 2, rows: 2, columns: 3, values: Float32Array.from(values), sampled: false });
  for (let i = 0; i < 6; i++) {
    const { a, b } = unpack(tile, Math.floor(i / 3), i % 3);
    assert.ok(Object.is(a, values[i]) && Object.is(b, values[6 + i]), String(i));
  }
  assert.ok(tile.pair.every(Number.isFinite));
});

test('the painter without WebGL2 shows NaN in magenta and never as a number', () => {
  const tile = packTile({ level: 0, x: 0, y: 0 }, { sides: 2, rows: 1, columns: 3, values: Float32Array.from([1, NaN, -1, 1, 2, 1]), sampled: false });
  const look = { show: 'difference' as const, map: colourMaps[0]!, low: -2, high: 2, swipe: -1, zeros: false };
  const out = new Uint8ClampedArray(12);
  colourTile(tile, look, out);
  assert.deepEqual([...out.slice(4, 7)], [255, 0, 190]);
  assert.ok(out[8]! > out[10]!, 'positive is orange');
  assert.equal(position(2, look), 1);
  assert.equal(position(0, look), 0.5);
  assert.equal(position(1e-3, { ...look, show: 'magnitude', high: 1 }), 0.5);
});

test('colours run from end to end', () => {
  const table = mix(['#000000', '#ffffff']);
  assert.deepEqual([...table.slice(0, 3)], [0, 0, 0]);
  assert.deepEqual([...table.slice(765)], [255, 255, 255]);
  for (let i = 1; i < 256; i++) assert.ok(table[3 * i]! >= table[3 * i - 3]!);
});

test('borders: inside and beyond the tolerance', () => {
  assert.equal(severity(0, 0), 0);
  assert.equal(severity(NaN, 1), 3);
  assert.ok(severity(0.5, 1) < 1 && severity(0.5, 1) > 0);
  assert.ok(severity(10, 1) > 1);
  assert.equal(severity(1e-30, 0), 3);
  assert.equal(strength(-4, 4), 1);
  assert.equal(strength(NaN, 4), 0);
});

test('addresses survive a round trip', () => {
  const route = { workspace: 'w3f9', tensor: 'a12', query: { at: '1,2,3', sort: 'error', q: 'a&b=c #x', range: '-1:2' } };
  assert.deepEqual(parseHash(formatHash(route)), route);
  assert.deepEqual(parseHash('#/'), { workspace: '', tensor: '', query: {} });
  assert.deepEqual(parseHash('#/w/%E0%A4%A/t/1').tensor, '1');
  assert.deepEqual(keepList({ sort: 'name', at: '1', q: 'x' }), { sort: 'name', q: 'x' });
});
