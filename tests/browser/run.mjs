// Drives the page of `tsleuth serve` in a real browser against the real server.
// usage: node tests/browser/run.mjs BINARY [PART OF A TEST'S NAME]
// TSLEUTH_SLOW=1 makes the page slow: a sixth of the processor, and answers that come late and out of order. What is
// tested must hold there too.
import { browserPath, loadPlaywright, runAll, startServer } from './harness.mjs';
import { patience } from './steps.mjs';
import './flows.mjs';
import './tensor.mjs';
import './many.mjs';
import './hostile.mjs';

const binary = process.argv[2];
if (!binary) {
  console.error('usage: node tests/browser/run.mjs BINARY');
  process.exit(2);
}
const playwright = loadPlaywright();
if (!playwright || !browserPath) {
  console.log('1..1');
  console.log(`ok 1 - browser # SKIP ${playwright ? 'chromium is not installed' : 'npm packages of web/ are not installed'}`);
  process.exit(0);
}

const server = await startServer(binary);
// Software rendering: WebGL2 is there without a graphics card.
const browser = await playwright.chromium.launch({
  executablePath: browserPath,
  args: [...(process.getuid?.() === 0 ? ['--no-sandbox'] : []), '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader'],
});
const slow = process.env.TSLEUTH_SLOW === '1';
const complaints = []; // what the browser itself objected to: errors, broken policy, dialogs
let last = null;

const context = {
  binary, server, browser, complaints,
  base: new URL('/', server.url).href,
  // Every page of the tests comes through here.
  async prepare(page) {
    page.setDefaultTimeout(patience);
    if (!slow) return page;
    const session = await page.context().newCDPSession(page);
    await session.send('Emulation.setCPUThrottlingRate', { rate: 6 });
    await page.addInitScript(() => {
      const real = window.fetch.bind(window);
      let count = 0;
      window.fetch = async (...words) => {
        const answer = await real(...words);
        await new Promise((resolve) => { setTimeout(resolve, 100 + (count++ * 137) % 400); });
        return answer;
      };
    });
    return page;
  },
  async open(address = '', options = {}) {
    const frame = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: 'light', acceptDownloads: true, ...options });
    const page = await context.prepare(await frame.newPage());
    page.on('pageerror', (error) => complaints.push(`error in the page: ${error.message}`));
    page.on('console', (message) => { if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) complaints.push(message.text()); });
    page.on('dialog', (dialog) => { if (dialog.type() !== 'confirm') complaints.push(`a dialog: ${dialog.message()}`); void dialog.accept(); });
    page.on('request', (request) => { if (!/^(data|blob):/.test(request.url()) && new URL(request.url()).origin !== new URL(server.url).origin) complaints.push(`a request to ${request.url()}`); });
    if (options.init) await page.addInitScript(options.init);
    await page.goto(context.base + address);
    last = page;
    return page;
  },
  async explain() {
    if (!last || last.isClosed()) return;
    console.log(`# at ${last.url()}`);
    const text = await last.locator('#app').innerText().catch(() => '');
    for (const line of text.split('\n').slice(0, 25)) console.log(`# | ${line}`);
    for (const line of complaints) console.log(`# ! ${line}`);
    if (process.env.TSLEUTH_SCREENSHOTS) await last.screenshot({ path: `${process.env.TSLEUTH_SCREENSHOTS}/failed-${Date.now()}.png` }).catch(() => {});
  },
};
const failed = await runAll(context, process.argv[3]);
await browser.close();
await server.close();
process.exit(failed ? 1 : 0);
