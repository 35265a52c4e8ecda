import assert from 'node:assert/strict';
import test from 'node:test';
import type { TensorList } from '../src/api';
import { arrange, layerOf, readRows, type Choice } from '../src/rows';

const columns = ['id', 'name', 'name_b', 'layer', 'stage', 'verdict', 'shape', 'dtype_a', 'dtype_b', 'max_abs', 'rel_l2', 'roundings', 'cosine', 'count', 'floor'];
const list: TensorList = {
  columns,
  rows: [
    [0, 'embed', 'embed', null, 'embed', 'ok', [4, 8], 'f32', 'f32', 0, 0, 0, 1, 32, 1e-8],
    [1, 'l10.q', 'l7.q', 10, 'q', 'noise', [4, 8], 'f32', 'f32', 1e-7, 2e-8, 3, 1, 32, 1e-8],
    [2, 'l9.q', 'l6.q', 9, 'q', 'differs', [4, 8], 'f32', 'f32', 0.5, 0.2, 1e9, 0.7, 32, 1e-8],
    [3, 'l9.k', 'l6.k', 9, 'k', 'differs', [2], 'f32', 'f32', 'nan', 'nan', null, 'nan', 2, null],
    [4, 'logits', 'logits', null, 'logits', 'differs', [100], 'f32', 'f32', 0.1, 0.3, 1e9, 0.9, 100, 1e-8],
  ],
  only_a: [{ id: 'a7', name: 'extra', shape: [3], dtype: 'f32' }],
  only_b: [],
  skipped: [{ path: 'cut.pth', reason: 'is truncated', side: 'b' }, { path: 'readme.md', reason: 'is text', side: 'a', harmless: true }],
};
const choice = (changes: Partial<Choice>): Choice => ({ sort: 'order', descending: false, group: 'none', show: new Set(), search: '', ...changes });
const never = () => false;
const ids = (changes: Partial<Choice>) => arrange(readRows(list), choice(changes), never).shown.map((row) => row.id || row.name);

test('ids are those of the server under every order', () => {
  assert.deepEqual(ids({}), ['0', '1', '2', '3', '4', 'a7', 'cut.pth', 'readme.md']);
  // worst first; not-a-number is worst of all; what was not compared comes last
  assert.deepEqual(ids({ sort: 'error', descending: true }), ['3', '4', '2', '1', '0', 'a7', 'cut.pth', 'readme.md']);
  assert.deepEqual(ids({ sort: 'max', descending: true }).slice(0, 3), ['3', '2', '4']);
  assert.deepEqual(ids({ sort: 'cosine', descending: true }).slice(0, 3), ['3', '2', '4']);
  assert.deepEqual(ids({ sort: 'size', descending: true }).slice(0, 3), ['4', '0', '1']);
  const byName = arrange(readRows(list), choice({ sort: 'name' }), never).shown;
  assert.deepEqual(byName.map((row) => row.name), ['cut.pth', 'embed', 'extra', 'l9.k', 'l9.q', 'l10.q', 'logits', 'readme.md']);
  for (const row of byName.filter((each) => each.kind === 'pair')) assert.equal(list.rows[Number(row.id)]![1], row.name);
});

test('filters and search', () => {
  assert.deepEqual(ids({ show: new Set(['differs']) }), ['2', '3', '4']);
  assert.deepEqual(ids({ show: new Set(['unreadable']) }), ['cut.pth']);
  assert.deepEqual(ids({ search: 'L9' }), ['2', '3']);
  assert.deepEqual(ids({ search: 'l7.q' }), ['1']);
  assert.deepEqual(ids({ search: '[100]' }), ['4']);
  assert.deepEqual(ids({ search: 'nothing like it' }), []);
});

test('groups by layer keep what is before and after the layers apart', () => {
  const { items, groups } = arrange(readRows(list), choice({ group: 'layer' }), never);
  assert.deepEqual(groups, ['no layer', '10', '9', 'no layer after', 'unreadable']);
  const labels = items.filter((item) => item.type === 'group').map((item) => (item.type === 'group' ? `${item.label} ${item.count} ${item.worst}` : ''));
  assert.deepEqual(labels, ['before the layers 1 ok', 'layer 10 1 noise', 'layer 9 2 differs', 'after the layers 2 differs', 'not read 2 unreadable']);
});

test('shut groups hide their rows and nothing else', () => {
  const all = arrange(readRows(list), choice({ group: 'stage' }), (key) => key === 'q');
  assert.deepEqual(all.items.filter((item) => item.type === 'row').length, list.rows.length - 2 + 3);
  assert.equal(all.shown.length, 8);
  const byVerdict = arrange(readRows(list), choice({ group: 'verdict' }), () => true);
  assert.deepEqual(byVerdict.groups, ['differs', 'noise', 'ok', 'only one side', 'unreadable', 'skipped']);
  assert.ok(byVerdict.items.every((item) => item.type === 'group'));
});

test('ten thousand rows', () => {
  const many: TensorList = { columns, rows: Array.from({ length: 10_000 }, (_, i) => [i, `l${i % 80}.x${i}`, '', i % 80, 'x', 'noise', [4], 'f32', 'f32', i, 1 / (i + 1), 1, 1, 4, 0]) };
  const { items } = arrange(readRows(many), choice({ group: 'layer', sort: 'error', descending: true }), never);
  assert.equal(items.length, 10_080);
});

test('one side alone', () => {
  const one: TensorList = { columns: [...columns, 'min', 'max', 'nan', 'inf'], rows: [['a0', 'w', null, 0, 'w', null, [2, 2], 'f32', null, null, null, null, null, 4, null, -1, 2, 3, 0]] };
  const row = readRows(one, true)[0]!;
  assert.deepEqual([row.id, row.kind, row.verdict, row.min, row.max, row.nan], ['a0', 'only_a', '', -1, 2, 3]);
});

test('layers are found in names of many kinds', () => {
  assert.equal(layerOf('3_query'), '3');
  assert.equal(layerOf('layer_12_attn_q'), '12');
  assert.equal(layerOf('model.layers.3.self_attn.q_proj'), '3');
  assert.equal(layerOf('blk.7.attn_q.weight'), '7');
  assert.equal(layerOf('L3.q'), '3');
  assert.equal(layerOf('logits'), '');
});
