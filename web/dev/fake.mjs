// A stand-in for `tsleuth serve` while the page is worked on: made-up tensors, the same API. A development tool only;
// nothing is proved with it. usage: node dev/fake.mjs [PORT]
import http from 'node:http';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const dist = path.join(path.dirname(fileURLToPath(import.meta.url)), '../dist');
const port = Number(process.argv[2] ?? 8765);
const wire = (value) => (Number.isNaN(value) ? 'nan' : value === Infinity ? 'inf' : value === -Infinity ? '-inf' : value);

// A value for every place, from its coordinates alone.
function noise(seed, flat) {
  let x = (Math.imul(flat + 1, 2654435761) ^ Math.imul(seed + 7, 40503)) >>> 0;
  x ^= x >>> 15; x = Math.imul(x, 2246822519) >>> 0; x ^= x >>> 13;
  return x / 2 ** 31 - 1;
}

const hostile = ['<img src=x onerror=alert(1)>', '"><script>document.title="owned"</script>', `${'very.long.'.repeat(60)}weight`, 'طبقة.0.وزن', '\u202Egpj.exe', 'a\u0000b\nc', '${7*7}{{7*7}}', '../../etc/passwd'];

function makeRows(count) {
  const stages = ['input_norm', 'q_proj', 'k_proj', 'v_proj', 'q_rope', 'k_rope', 'scores', 'probs', 'context', 'o_proj', 'residual', 'post_norm', 'gate', 'up', 'act', 'down', 'out'];
  const shapes = [[9, 64], [9, 4, 16], [9, 2, 16], [9, 2, 16], [9, 4, 16], [9, 2, 16], [4, 9, 9], [4, 9, 9], [9, 64], [9, 64], [9, 64], [9, 64], [9, 112], [9, 112], [9, 112], [9, 64], [9, 64]];
  const rows = [{ name: 'input_embeddings', layer: null, stage: 'input_embeddings', shape: [9, 64] }];
  for (let i = 0; rows.length < count - 1 - hostile.length - 3; i++) rows.push({ name: `layer_${Math.floor(i / 17)}_${stages[i % 17]}`, layer: Math.floor(i / 17), stage: stages[i % 17], shape: shapes[i % 17] });
  for (const name of hostile) rows.push({ name, layer: null, stage: 'hostile', shape: [12, 20] });
  rows.push({ name: 'wide', layer: null, stage: 'wide', shape: [4096, 11008] }, { name: 'vector', layer: null, stage: 'vector', shape: [5000] }, { name: 'scalar', layer: null, stage: 'scalar', shape: [] });
  rows.push({ name: 'logits', layer: null, stage: 'logits', shape: [9, 32000] });
  const bad = Math.floor(count * 0.45);
  return rows.map((row, id) => {
    const differs = id >= bad;
    const error = id === 0 ? 0 : differs ? 0.02 + 0.3 * Math.abs(noise(3, id)) : 3e-8 * (1 + id / 50) * (1 + Math.abs(noise(1, id)));
    return { id, ...row, name_b: row.name.replace(/^layer_(\d+)/, (_, n) => `model.layers.${n}`), verdict: id === 0 ? 'ok' : id % 97 === 96 ? 'cannot tell' : differs ? 'differs' : 'noise', error, nan: id % 53 === 52 };
  });
}

const sets = { small: makeRows(70), large: makeRows(10000), one: makeRows(60) };
const valueA = (row, flat) => (row.nan && flat % 41 === 7 ? (flat % 3 === 0 ? NaN : flat % 3 === 1 ? Infinity : -Infinity) : flat % 29 === 3 ? 0 : noise(row.id, flat) * (1 + (flat % 7)));
const valueB = (row, flat) => { const a = valueA(row, flat); return row.verdict === 'ok' ? a : row.verdict === 'differs' && flat % 17 === 5 ? a * 0.7 + 0.2 : a * (1 + row.error * noise(row.id + 1, flat)); };
const product = (shape) => shape.reduce((p, n) => p * n, 1);
const strides = (shape) => shape.map((_, axis) => product(shape.slice(axis + 1)));

function listOf(id) {
  const rows = sets[id];
  const single = id === 'one';
  const first = rows.find((row) => row.verdict === 'differs');
  return {
    verdict: single ? null : 'differ', first: single ? null : { id: String(first.id), name: first.name, why: 'its inputs agree (520 roundings of f32), so the error is made here' },
    causes: single ? [] : [{ id: 'rotation', confidence: 1, summary: "the candidate's angles fit theta = 1e+06, the reference's theta = 10000", check: 'rope_theta, rope scaling, position ids' }, { id: 'heads', confidence: 0.3, summary: 'confined to head 2' }],
    doubts: [], a: { name: 'reference.safetensors', tensors: rows.length, bytes: 154000 }, b: single ? null : { name: 'rope_theta.safetensors', tensors: rows.length, bytes: 154000 },
    columns: ['id', 'name', 'name_b', 'layer', 'stage', 'verdict', 'shape', 'dtype_a', 'dtype_b', 'max_abs', 'rel_l2', 'roundings', 'cosine', 'count', 'how', 'recipe', 'ambiguous', 'guess', 'floor', 'min', 'max', 'nan', 'inf'],
    rows: rows.map((r) => single ? [`a${r.id}`, r.name, null, r.layer, r.stage, null, r.shape, 'f32', null, null, null, null, null, product(r.shape), null, null, null, null, null, -3, 4.5, r.nan ? 4 : 0, 0] : [String(r.id), r.name, r.name_b, r.layer, r.stage, r.verdict, r.shape, 'f32', 'bf16', r.error * 7, r.error, (r.error / 1e-8) ** 2, 1 - r.error ** 2, product(r.shape), 'name', r.id % 4 === 1 ? 'B: swap 0 1' : '', false, false, 2.5e-8]),
    only_a: single ? [] : [{ id: 'a3', name: 'extra.a', shape: [4, 4], dtype: 'f32' }],
    only_b: single ? [] : [{ id: 'b5', name: 'extra.b', shape: [8], dtype: 'bf16' }],
    skipped: [{ path: 'cut.pth', reason: 'begins like a zip file, but has no end record in its last 65557 bytes: it is truncated', side: 'a' }],
    findings: single ? [{ id: 'tail', severity: 'warning', tensor: rows[3].name, text: 'from [6,0] to the end all 128 elements (25 %) are 0' }, { id: 'nan', severity: 'fault', tensor: rows[52].name, text: '12 NaN, first at [0,7]' }] : undefined,
  };
}

function rowOf(set, id) { const n = Number(id.replace(/^[ab]/, '')); return sets[set].find((row) => row.id === n); }
const index = (row, flat) => strides(row.shape).map((stride, axis) => Math.floor(flat / stride) % row.shape[axis]);

function detailOf(set, id) {
  const row = rowOf(set, id);
  const n = Math.min(product(row.shape), 20000);
  const one = /^[ab]/.test(id);
  let worst = 0, most = -1;
  const stats = [0, 1].map((side) => { const values = Array.from({ length: n }, (_, f) => (side ? valueB : valueA)(row, f)).filter(Number.isFinite); const mean = values.reduce((s, v) => s + v, 0) / n; return { min: Math.min(...values), max: Math.max(...values), mean, std: Math.sqrt(values.reduce((s, v) => s + (v - mean) ** 2, 0) / n), norm: Math.hypot(...values) }; });
  for (let f = 0; f < n; f++) { const d = Math.abs(valueB(row, f) - valueA(row, f)); if (d > most) { most = d; worst = f; } }
  const profile = row.shape.map((size, axis) => { const bins = Math.min(512, size); const max = Array(bins).fill(0); for (let f = 0; f < n; f++) { const b = Math.floor((index(row, f)[axis] * bins) / size); const d = Math.abs(valueB(row, f) - valueA(row, f)); if (d > max[b]) max[b] = d; } return { axis, name: ['tokens', 'heads', 'dim'][axis], rms: max.map((m) => m * 0.4), max }; });
  const edges = Array.from({ length: 65 }, (_, i) => -7 + (14 * i) / 64);
  const count = (f) => { const bins = Array(64).fill(0); for (let i = 0; i < n; i++) { const b = Math.floor(((f(i) + 7) / 14) * 64); if (b >= 0 && b < 64) bins[b]++; } return bins; };
  const common = { id, name: row.name, shape: row.shape, stats_a: stats[0], profiles: profile };
  if (one) return { ...common, dtype_a: 'f32', histograms: { edges, a: count((i) => valueA(row, i)) } };
  return { ...common, name_b: row.name_b, shape_a: row.shape, shape_b: [1, ...row.shape], dtype_a: 'f32', dtype_b: 'bf16', verdict: row.verdict, why: row.verdict === 'differs' ? 'its error is 1.15e+04 times what came in' : null, how: 'name', recipe: 'B: drop axis 0', max_abs: most, rel_l2: row.error, roundings: 12.5, cosine: 1 - row.error ** 2, mean_abs: most / 9, max_ulp: 123456, precision_a: 23, precision_b: 7, worst: index(row, worst), stats_b: stats[1], quantiles: { p50: most / 20, p90: most / 8, p99: most / 3, p99_9: most / 1.2, p100: most }, histograms: { edges, a: count((i) => valueA(row, i)), b: count((i) => valueB(row, i)), difference: count((i) => 5 * (valueB(row, i) - valueA(row, i))) } };
}

function tileOf(set, id, query) {
  const row = rowOf(set, id);
  const axes = (query.get('axes') ?? '').split(',').filter(Boolean).map(Number);
  const at = (query.get('at') ?? '').split(',').map(Number);
  const level = Number(query.get('level')), tx = Number(query.get('x')), ty = Number(query.get('y'));
  const st = strides(row.shape);
  const rowAxis = axes.length === 2 ? axes[0] : -1, columnAxis = axes[axes.length - 1] ?? -1;
  const R = rowAxis < 0 ? 1 : row.shape[rowAxis], C = columnAxis < 0 ? 1 : row.shape[columnAxis], span = 2 ** level;
  const rows = Math.min(256, Math.ceil(R / span) - 256 * ty), columns = Math.min(256, Math.ceil(C / span) - 256 * tx);
  const base = row.shape.reduce((sum, _, axis) => sum + (axis === rowAxis || axis === columnAxis ? 0 : (at[axis] || 0) * st[axis]), 0);
  const sides = /^[ab]/.test(id) ? 1 : 2;
  const out = new Float32Array(sides * rows * columns);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
    let most = -1, a = 0, b = 0;
    for (let p = 0; p < Math.min(span, 4); p++) for (let q = 0; q < Math.min(span, 4); q++) {
      const r = Math.min(R - 1, (256 * ty + i) * span + p), c = Math.min(C - 1, (256 * tx + j) * span + q);
      const flat = base + (rowAxis < 0 ? 0 : r * st[rowAxis]) + (columnAxis < 0 ? 0 : c * st[columnAxis]);
      const x = valueA(row, flat), y = valueB(row, flat), d = Math.abs(y - x);
      if (!(d <= most)) { most = Number.isNaN(d) ? Infinity : d; a = x; b = y; }
    }
    out[i * columns + j] = a;
    if (sides === 2) out[(rows + i) * columns + j] = b;
  }
  return { shape: [sides, rows, columns], bytes: Buffer.from(out.buffer) };
}

const uploaded = new Map();
http.createServer(async (request, response) => {
  const url = new URL(request.url, 'http://x');
  const send = (status, body, headers = {}) => { response.writeHead(status, { 'Content-Type': 'application/json', ...headers }); response.end(typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body)); };
  const error = (status, message, fix) => send(status, { error: { status, message, fix } });
  try {
    if (!url.pathname.startsWith('/api/')) {
      const name = url.pathname === '/' ? 'index.html' : path.basename(url.pathname);
      const type = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }[path.extname(name)] ?? 'text/plain';
      return send(200, await readFile(path.join(dist, name)), { 'Content-Type': `${type}; charset=utf-8`, 'Content-Security-Policy': "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'" });
    }
    const parts = url.pathname.split('/').slice(3).map(decodeURIComponent);
    const state = (id) => (sets[id] ? { id, state: 'done', created: Date.now() / 1000, used: Date.now() / 1000 - 4000, a: { name: 'reference.safetensors', bytes: 154000, state: 'ready' }, b: id === 'one' ? null : { name: 'rope_theta.safetensors', bytes: 154000, state: 'ready' } } : uploaded.get(id));
    if (parts[0] === 'health') return send(200, { name: 'tsleuth', version: 'fake', schema: 'tsleuth.api/1' });
    if (parts[0] !== 'workspaces') return error(404, 'there is nothing here');
    if (parts.length === 1 && request.method === 'POST') { const id = `w${Date.now()}`; uploaded.set(id, { id, state: 'empty', created: Date.now() / 1000, a: null, b: null }); return send(201, { id }); }
    if (parts.length === 1) return send(200, [...uploaded.keys(), ...Object.keys(sets)].map(state));
    const [, id, what, pair, part] = parts;
    const now = state(id);
    if (!now) return error(404, `there is no workspace ${id}`, 'start anew');
    if (!what) return request.method === 'DELETE' ? (uploaded.delete(id), send(204, '')) : send(200, now);
    if ((what === 'a' || what === 'b') && request.method === 'PUT') {
      let size = 0;
      for await (const piece of request) size += piece.length;
      const name = parts.slice(4 - 0).join('/') || part;
      (now[what] ??= { name, bytes: 0, files: [] }).files.push({ name, bytes: size, complete: true });
      now.state = 'ready';
      return send(201, { name, bytes: size, complete: true });
    }
    if ((what === 'a' || what === 'b') && request.method === 'HEAD') return send(404, '');
    if (what === 'run') { now.state = 'failed'; now.error = { message: 'the fake cannot compare', fix: 'use the real server' }; return send(202, {}); }
    if (what === 'map') return send(200, {});
    if (what !== 'tensors') return send(202, {});
    if (pair === undefined) return send(200, listOf(id));
    const row = rowOf(id, pair);
    if (!row) return error(404, `there is no tensor ${pair}`, 'go back to the overview');
    if (!part || part === 'remap') return send(200, detailOf(id, pair));
    if (part === 'tile') { const tile = tileOf(id, pair, url.searchParams); return send(200, tile.bytes, { 'Content-Type': 'application/octet-stream', 'X-Tsleuth-Shape': tile.shape.join(',') }); }
    if (part === 'causes') return setTimeout(() => send(200, [{ id: 'rotation', confidence: 1, summary: "the candidate's angles fit theta = 1e+06, the reference's theta = 10000 (16 rotated channels per head)", check: 'rope_theta, rope_scaling, position ids, and the pairing (half-split or interleaved)', evidence: [{ name: 'against', value: "the reference's operation, replayed on the candidate's own inputs", text: 'what the candidate was held against' }, { name: 'error', value: 0.233, text: 'size of the error, relative to what was expected' }, { name: 'left', value: 3.8e-8, text: 'size of what stays when the cause is granted' }, { name: 'explained', value: 1, text: "share of the error's energy that follows from the cause" }, { name: 'fitted', value: 1, text: 'free numbers that were fitted to the candidate' }] }]), 300);
    if (part === 'worst') { const n = Math.min(product(row.shape), 20000); const order = Array.from({ length: n }, (_, f) => f).sort((x, y) => Math.abs(valueB(row, y) - valueA(row, y)) - Math.abs(valueB(row, x) - valueA(row, x))); const flat = url.searchParams.get('first') ? Array.from({ length: n }, (_, f) => f).find((f) => Number.isNaN(valueA(row, f))) : order[Number(url.searchParams.get('after') ?? 0)]; return flat === undefined ? error(404, 'no NaN in either side') : send(200, { index: index(row, flat), a: wire(valueA(row, flat)), b: wire(valueB(row, flat)), difference: wire(valueB(row, flat) - valueA(row, flat)) }); }
    if (part === 'scatter') return send(200, { a: Array.from({ length: 2000 }, (_, i) => wire(valueA(row, i))), b: Array.from({ length: 2000 }, (_, i) => wire(valueB(row, i))) });
    if (part === 'values') {
      const start = url.searchParams.get('start').split(',').filter(Boolean).map(Number), count = url.searchParams.get('count').split(',').filter(Boolean).map(Number);
      const st = strides(row.shape), inner = strides(count), n = product(count);
      const flat = (i) => start.reduce((sum, s, axis) => sum + (s + (Math.floor(i / inner[axis]) % count[axis])) * st[axis], 0);
      return send(200, { shape: row.shape, start, count, a: Array.from({ length: n }, (_, i) => wire(valueA(row, flat(i)))), b: /^[ab]/.test(pair) ? undefined : Array.from({ length: n }, (_, i) => wire(valueB(row, flat(i)))) });
    }
    return error(404, 'there is nothing here');
  } catch (problem) { console.error(problem); error(500, String(problem)); }
}).listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}/#/w/small`));
