import assert from 'node:assert/strict';
import test from 'node:test';
import { exactIntegers, explain, filePath, number } from '../src/api';
import { ago, bytes, exact, full, fullSingle, middle, short, shortPaths, visible } from '../src/format';

test('short keeps small values apart from zero', () => {
  assert.equal(short(0), '0');
  assert.equal(short(-0), '−0');
  assert.equal(short(1e-7), '1e−7');
  assert.equal(short(4.9e-7, 2), '4.9e−7');
  assert.equal(short(-1234.5, 3), '−1230');
  assert.equal(short(0.12345, 3), '0.123');
  assert.equal(short(100000, 3), '1e5');
  assert.equal(short(NaN), 'NaN');
  assert.equal(short(-Infinity), '−Inf');
  assert.equal(short(1), '1');
  assert.equal(short(5e-324), '4.94e−324');
});

test('full digits read back equal', () => {
  for (const value of [0.1, 1 / 3, 1e-300, 123456789.123, -0.30000000000000004]) assert.equal(Number(full(value)), value);
  assert.equal(full(-0), '-0');
  for (const value of [0.1, 1 / 3, 16777216, 1e-40, 3.4028234663852886e38].map(Math.fround)) assert.equal(Math.fround(Number(fullSingle(value))), value);
  assert.equal(fullSingle(Math.fround(0.1)), '0.1');
});

test('integers beyond 2^53 keep their digits', () => {
  const block = JSON.parse(exactIntegers('{"a":[9007199254740993, 12,-9223372036854775808],"b":[1.5]}')) as { a: unknown[] };
  assert.deepEqual(block.a, ['9007199254740993', 12, '-9223372036854775808']);
  assert.equal(exact(block.a[0], number(block.a[0] as string)), '9007199254740993');
  assert.equal(number('-9223372036854775808'), -(2 ** 63));
  assert.equal(exactIntegers('[0.12345678901234567]'), '[0.12345678901234567]');
});

test('wire numbers', () => {
  assert.equal(number('inf'), Infinity);
  assert.equal(number('-inf'), -Infinity);
  assert.ok(Number.isNaN(number('nan')) && Number.isNaN(number(null)));
  assert.equal(number([3, 4]), 5);
  assert.equal(exact([3, 4], 5), '3 + 4 i');
});

test('sizes, names, times', () => {
  assert.equal(bytes(999), '999 B');
  assert.equal(bytes(999_600), '1 MB');
  assert.equal(bytes(1_234_567), '1.23 MB');
  assert.equal(middle('abcdefghij', 5), 'ab…ij');
  assert.equal(middle('abc', 5), 'abc');
  assert.equal(visible('a\u202eb\n\u0000'), 'a\\u202eb\\u000a\\u0000');
  assert.equal(visible('طبقة'), 'طبقة');
  assert.equal(ago(1000, 1000_000 + 7200_000), '2 hours ago');
});

test('errors say what to do', () => {
  const told = explain(413, '{"error":{"status":413,"message":"too large","fix":"use --upload-limit"}}', '/x');
  assert.equal(told.message, 'too large');
  assert.equal(told.fix, 'use --upload-limit');
  assert.match(explain(0, '', '/x').fix, /tsleuth serve/);
  assert.match(explain(502, '<html>', '/x').message, /502/);
});

test('file names are encoded part by part', () => {
  assert.equal(filePath('w1', 'a', 'run 1/ä#?.npy'), '/workspaces/w1/a/files/run%201/%C3%A4%23%3F.npy');
});

test('paths are told apart by their ends', () => {
  assert.deepEqual(shortPaths(['/x/y/a.zip', '/x/y/b.zip']), ['a.zip', 'b.zip']);
  assert.deepEqual(shortPaths(['/run1/d/m.pt', '/run2/d/m.pt']), ['run1/d/m.pt', 'run2/d/m.pt']);
  assert.deepEqual(shortPaths(['m.pt', 'm.pt']), ['m.pt', 'm.pt']);
  assert.deepEqual(shortPaths(['/x/m.pt', null]), ['m.pt', '']);
});
