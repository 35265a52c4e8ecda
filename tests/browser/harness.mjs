// What the browser tests share: the server under test, a browser, small files made here, and TAP.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const golden = (name) => path.join(root, 'tests/golden', name);
export const browserPath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((each) => existsSync(each));

export function loadPlaywright() {
  try { return createRequire(path.join(root, 'web/package.json'))('playwright-core'); } catch { return null; }
}

// The server says its address on its first line.
export async function startServer(binary, words = [], again = null) {
  const folder = again?.folder ?? mkdtempSync(path.join(tmpdir(), 'tsleuth-browser-'));
  const child = spawn(binary, ['serve', '--port', again ? new URL(again.url).port : '0', '--workspaces', path.join(folder, 'workspaces'), ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  const url = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`the server said no address in 60 s: ${said}`)), 60_000);
    const hear = (data) => {
      said += data;
      const found = /http:\/\/[^\s]+/.exec(said);
      if (found && said.includes('\n')) { clearTimeout(timer); resolve(found[0]); }
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.on('exit', (status) => { clearTimeout(timer); reject(new Error(`the server ended with ${status}: ${said}`)); });
  });
  const end = () => new Promise((resolve) => {
    if (child.exitCode !== null) { resolve(); return; }
    child.removeAllListeners('exit');
    child.on('exit', () => resolve());
    child.kill('SIGINT');
  });
  // Another server with the same workspaces at the same address.
  const restart = async () => { await end(); return startServer(binary, [], { folder, url }); };
  return { url, folder, end, restart, async close() { await end(); rmSync(folder, { recursive: true, force: true }); } };
}

// A safetensors file out of { name: { shape, values } }, in float32.
export function safetensors(tensors, metadata) {
  const header = metadata ? { __metadata__: metadata } : {};
  const parts = [];
  let offset = 0;
  for (const [name, { shape, values }] of Object.entries(tensors)) {
    const data = Buffer.from(Float32Array.from(values).buffer);
    Object.defineProperty(header, name, { value: { dtype: 'F32', shape, data_offsets: [offset, offset + data.length] }, enumerable: true });
    offset += data.length;
    parts.push(data);
  }
  const text = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([size, text, ...parts]);
}

// Reads one back, without any of our own code: float32 tensors only.
export function readSafetensors(bytes) {
  const length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, 8 + length).toString());
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header).filter(([key]) => key !== '__metadata__')) {
    if (dtype !== 'F32') continue;
    const data = bytes.subarray(8 + length + from, 8 + length + to);
    tensors[name] = { shape, values: Array.from({ length: data.length / 4 }, (_, i) => data.readFloatLE(4 * i)) };
  }
  return tensors;
}

export function coordinates(shape, flat) {
  const index = shape.map(() => 0);
  for (let axis = shape.length - 1; axis >= 0; axis--) { index[axis] = flat % shape[axis]; flat = Math.floor(flat / shape[axis]); }
  return index;
}

// Numbers from one seed, between -1 and 1.
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  };
}

let tests = [];
export function test(name, body) { tests.push({ name, body }); }

export async function runAll(context, pattern) {
  if (pattern) tests = tests.filter(({ name }) => name.includes(pattern));
  console.log(`1..${tests.length}`);
  let failed = 0;
  for (const [index, { name, body }] of tests.entries()) {
    try {
      await body(context);
      console.log(`ok ${index + 1} - ${name}`);
    } catch (error) {
      failed++;
      console.log(`not ok ${index + 1} - ${name}`);
      for (const line of String(error?.stack ?? error).split('\n').slice(0, 14)) console.log(`# ${line}`);
      await context.explain?.();
    }
  }
  return failed;
}
