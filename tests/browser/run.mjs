// Drives the page of `tsleuth serve` in a real browser against the real server.
// usage: node tests/browser/run.mjs BINARY [PART OF A TEST'S NAME]
import { browserPath, loadPlaywright, runAll, startServer } from './harness.mjs';
import './flows.mjs';
import './tensor.mjs';
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
const complaints = []; // what the browser itself objected to: errors, broken policy, dialogs
let last = null;

const context = {
  binary, server, browser, complaints,
  base: new URL('/', server.url).href,
  async open(address = '', options = {}) {
    const frame = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: 'light', acceptDownloads: true, ...options });
    const page = await frame.newPage();
    page.setDefaultTimeout(15_000);
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
