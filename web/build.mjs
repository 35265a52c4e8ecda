// Builds the page: web/dist/{index.html,app.js,app.css}. `--check` builds in memory and fails when dist is not current,
// `--test` bundles the unit tests for node's own runner.
import { build } from 'esbuild';
import { readFile, readdir, mkdir, writeFile, rm } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { fileURLToPath } from 'node:url';
import path from 'node:path';

const here = path.dirname(fileURLToPath(import.meta.url));
const dist = path.join(here, 'dist');
const limit = 120 * 1024;

async function bundle() {
  const result = await build({
    absWorkingDir: here,
    entryPoints: { app: 'src/main.tsx' },
    bundle: true,
    minify: true,
    format: 'esm',
    target: ['es2021'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    legalComments: 'none',
    charset: 'utf8',
    outdir: 'dist',
    write: false,
  });
  const files = new Map(result.outputFiles.map((file) => [path.basename(file.path), Buffer.from(file.contents)]));
  files.set('index.html', await readFile(path.join(here, 'src/index.html')));
  return files;
}

if (process.argv.includes('--test')) {
  const folder = path.join(here, '.cache/test');
  await rm(folder, { recursive: true, force: true });
  const tests = (await readdir(path.join(here, 'test'))).filter((name) => name.endsWith('.test.ts'));
  await build({
    absWorkingDir: here,
    entryPoints: tests.map((name) => `test/${name}`),
    bundle: true,
    platform: 'node',
    format: 'esm',
    outExtension: { '.js': '.mjs' },
    outdir: folder,
    jsx: 'automatic',
    jsxImportSource: 'preact',
    logLevel: 'warning',
  });
} else {
  const files = await bundle();
  let packed = 0;
  for (const contents of files.values()) packed += gzipSync(contents, { level: 9 }).length;
  const size = `${(packed / 1024).toFixed(1)} KB gzipped`;
  if (packed > limit) {
    console.error(`build: the page has ${size}, more than ${limit / 1024} KB`);
    process.exitCode = 1;
  }
  if (process.argv.includes('--check')) {
    for (const [name, contents] of files) {
      const there = await readFile(path.join(dist, name)).catch(() => null);
      if (!there || !there.equals(contents)) {
        console.error(`build: web/dist/${name} is not what web/src makes; run: npm run build`);
        process.exitCode = 1;
      }
    }
  } else {
    await mkdir(dist, { recursive: true });
    for (const [name, contents] of files) await writeFile(path.join(dist, name), contents);
    console.log(`web/dist: ${size}`);
  }
}
