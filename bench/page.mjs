// Measures the page of `tsleuth serve` in a real browser: how soon the overview is there, and the longest task of the
// page's main thread while a long list is scrolled, sorted, grouped, filtered and searched.
// usage: node bench/page.mjs URL [first]      (first: the overview alone)
// Says one line of JSON, {"milliseconds": {…}}; {"skip": reason} without a browser.
import { createRequire } from 'node:module';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const browserPath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((each) => existsSync(each));
let playwright = null;
try { playwright = createRequire(path.join(root, 'web/package.json'))('playwright-core'); } catch { /* said below */ }
if (!playwright || !browserPath) {
  console.log(JSON.stringify({ skip: playwright ? 'chromium is not installed' : 'the npm packages of web/ are not installed' }));
  process.exit(0);
}

const browser = await playwright.chromium.launch({ executablePath: browserPath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
const milliseconds = {};
// When the first row is there, as the page's own clock has it.
await page.addInitScript(() => {
  const observer = new MutationObserver(() => {
    if (!document.querySelector('.lines .line')) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.firstRow = performance.now(); }, 0));
  });
  observer.observe(document, { childList: true, subtree: true });
});
await page.goto(process.argv[2]);
await page.waitForFunction(() => window.firstRow && performance.getEntriesByType('navigation')[0].loadEventEnd);
const first = await page.evaluate(() => ({ row: window.firstRow, load: performance.getEntriesByType('navigation')[0].loadEventEnd }));
milliseconds['from the loaded page to the list'] = Math.max(0, first.row - first.load);
if (process.argv[3] === 'first') {
  console.log(JSON.stringify({ milliseconds }));
  await browser.close();
  process.exit(0);
}

// Processor time of the longest task of the page's main thread while the action runs: other programs on this machine
// do not count.
async function longest(action) {
  await browser.startTracing(page, { categories: ['toplevel'] });
  await action();
  await page.waitForTimeout(400);
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  const main = new Set(traceEvents.filter((event) => event.name === 'thread_name' && event.args.name === 'CrRendererMain').map((event) => `${event.pid}/${event.tid}`));
  return Math.max(0, ...traceEvents.filter((event) => event.ph === 'X' && /RunTask$/.test(event.name) && main.has(`${event.pid}/${event.tid}`)).map((event) => (event.tdur ?? event.dur) / 1000));
}
const choose = (label, value) => longest(() => page.getByLabel(label).selectOption(value));
const press = (name) => longest(() => page.getByRole('button', { name }).click());

milliseconds['scrolling'] = await longest(() => page.evaluate(async () => {
  for (let at = 0; at < document.body.scrollHeight; at += 1400) {
    scrollTo(0, at);
    await new Promise((resolve) => { requestAnimationFrame(resolve); });
  }
}));
milliseconds['to the top at once'] = await longest(() => page.evaluate(() => scrollTo(0, 0)));
milliseconds['collapse all'] = await press('Collapse all');
milliseconds['expand all'] = await press('Expand all');
milliseconds['sort by name'] = await choose('Sort by', 'name');
milliseconds['sort by error'] = await choose('Sort by', 'error');
milliseconds['group by verdict'] = await choose('Group by', 'verdict');
milliseconds['search'] = await longest(async () => {
  for (const text of ['l', 'la', 'layers.4', 'layers.47.w3']) {
    await page.getByLabel('Search tensors').fill(text);
    await page.waitForTimeout(180);
  }
});
console.log(JSON.stringify({ milliseconds }));
await browser.close();
