// What must not hurt: names that are markup, broken files, small screens, a server that is gone.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { golden, random, safetensors, startServer, test } from './harness.mjs';
import { compare, done, drop, eventually, fromDisk, openTensor, place, settled } from './steps.mjs';

const names = [
  '<img src=x onerror="window.owned=1">', '"><script>window.owned=1</script>', '<style>body{display:none}</style>', "javascript:window.owned=1//'",
  `${'very.long.name.'.repeat(80)}weight`, 'طبقة.0.وزن', '\u202Etxt.exe', 'line\nbreak\ttab', '{{7*7}}${7*7}', '../../../etc/passwd', '__proto__', 'constructor', ' ',
];

test('hostile names are harmless text', async (context) => {
  const next = random(1);
  const tensors = (factor) => safetensors(Object.fromEntries(names.map((name) => [name === '__proto__' ? 'proto' : name, { shape: [4, 4], values: Array.from({ length: 16 }, () => factor * next()) }])));
  const page = await compare(context, { name: 'a<b>&".safetensors', bytes: tensors(1) }, { name: '<img src=x onerror=alert(1)>.safetensors', bytes: tensors(2) });
  await eventually(async () => {
    const rows = await page.locator('.lines .line:not(.group)').count();
    assert.ok(rows >= names.length - 1, `${rows} rows`);
  });
  assert.equal(await page.locator('main img, main script, main style, header img').count(), 0);
  for (const name of [names[0], names[1], names[5]]) {
    await openTensor(page, name);
    await eventually(async () => assert.equal(await page.locator('main.tensor h1').innerText(), name));
    await settled(page);
    assert.equal((await place(page)).index.length, 2);
    await page.getByRole('button', { name: '← Overview' }).click();
  }
  assert.equal(await page.evaluate(() => window.owned), undefined);
  const width = await page.evaluate(() => document.scrollingElement.scrollWidth);
  assert.ok(width <= 1280, `the page is ${width} wide`);
  await page.context().close();
});

test('a corrupt upload says what is wrong and what to do', async (context) => {
  const page = await context.open();
  await drop(page, 'a', [{ name: 'cut.safetensors', bytes: readFileSync(golden('trace/reference.safetensors')).subarray(0, 900) }]);
  await page.locator('.zone[data-side="a"] .file').first().waitFor();
  await drop(page, 'b', [fromDisk(golden('trace/rope_theta.safetensors'))]);
  const alert = page.getByRole('alert');
  await alert.first().waitFor();
  const text = await alert.first().innerText();
  assert.match(text, /cut\.safetensors|truncated|header/);
  assert.doesNotMatch(text, /undefined|\[object|NaN/);
  assert.ok(text.split('\n').filter(Boolean).length >= 2, `says what to do: ${text}`);
  // Taking the broken file away and giving the right one leads on.
  await page.getByRole('button', { name: 'Remove cut.safetensors' }).click();
  await page.locator('.zone[data-side="a"] .file').waitFor({ state: 'detached' });
  await drop(page, 'a', [fromDisk(golden('trace/reference.safetensors'))]);
  await done(page);
  await eventually(async () => assert.match(await page.locator('.verdict').innerText(), /layer_1_attn_q_rope/));
  await page.context().close();
});

test('what is missing or unreadable is in the list with its reason', async (context) => {
  const next = random(2);
  const two = (extra) => safetensors({ shared: { shape: [4], values: Array.from({ length: 4 }, next) }, [extra]: { shape: [3, 5], values: Array.from({ length: 15 }, next) } });
  const page = await context.open();
  await drop(page, 'a', [{ name: 'good.safetensors', bytes: two('alpha.special') }, { name: 'broken.npy', bytes: Buffer.from('\x93NUMPY\x01\x00garbage', 'latin1') }]);
  await page.locator('.zone[data-side="a"] .file').nth(1).waitFor();
  await drop(page, 'b', [{ name: 'other.safetensors', bytes: two('beta.unusual') }]);
  await done(page);
  await eventually(async () => {
    const text = await page.locator('main').innerText();
    assert.match(text, /broken\.npy/);
    assert.match(text, /alpha\.special/);
    assert.match(text, /beta\.unusual/);
  });
  // One without partner can be looked at like any other.
  await openTensor(page, 'alpha.special');
  await settled(page);
  await eventually(async () => assert.match(await page.locator('section[aria-labelledby="statistics-title"]').innerText(), /count\s+15/));
  await page.getByRole('button', { name: '← Overview' }).click();
  await page.getByLabel('Search tensors').fill('');
  await page.locator('.chip', { hasText: 'unreadable' }).click();
  await eventually(async () => assert.equal(await page.locator('.lines .line:not(.group)').count(), 1));
  await eventually(async () => assert.ok((await page.locator('.lines .line:not(.group) .note').innerText()).length > 10));
  await page.context().close();
});

test('small screens: nothing is wider than the screen', async (context) => {
  const page = await compare(context, fromDisk(golden('archives/model1_tp8.zip')), fromDisk(golden('archives/model2_tp1.zip')), { viewport: { width: 400, height: 800 } });
  const wide = () => page.evaluate(() => document.scrollingElement.scrollWidth);
  await page.locator('.chart canvas').waitFor();
  assert.ok(await wide() <= 400, `overview ${await wide()}`);
  await openTensor(page, '4_post_mlp');
  await settled(page);
  assert.ok(await wide() <= 400, `tensor ${await wide()}`);
  await page.context().close();
});

test('everything that can be pressed has a name, every picture a description', async (context) => {
  const page = await compare(context, fromDisk(golden('trace/reference.safetensors')), fromDisk(golden('trace/rope_theta.safetensors')));
  const nameless = () => page.evaluate(() => [...document.querySelectorAll('button, a[href], input, select, [role=img], [role=progressbar], [role=application]')]
    .filter((each) => !each.hidden && !(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.length || each.title))
    .map((each) => each.outerHTML.slice(0, 120)));
  assert.deepEqual(await nameless(), []);
  await openTensor(page, 'layer_1_attn_q_rope');
  await settled(page);
  assert.deepEqual(await nameless(), []);
  assert.equal(await page.locator('h1').count(), 1);
  await page.context().close();
});

test('a server that is gone is said, with what to do', async (context) => {
  const own = await startServer(context.binary, [golden('trace/reference.safetensors'), golden('trace/rope_theta.safetensors')]);
  const page = await context.prepare(await context.browser.newPage());
  await page.goto(own.url);
  await done(page);
  await openTensor(page, 'layer_1_attn_q_rope');
  await own.end();
  await page.getByRole('button', { name: 'Worst', exact: true }).click();
  await page.getByText('the server does not answer').first().waitFor();
  await page.getByText(/tsleuth serve still runs/).first().waitFor();
  await own.close();
  await page.close();
});

test('a token opens the page and does not stay in its address', async (context) => {
  const own = await startServer(context.binary, [golden('trace/reference.safetensors'), golden('trace/rope_theta.safetensors'), '--token', 'random']);
  const page = await context.prepare(await context.browser.newPage());
  const refused = await page.goto(new URL('/', own.url).href);
  assert.equal(refused.status(), 401);
  await page.goto(own.url);
  await done(page);
  assert.doesNotMatch(page.url(), /token/);
  await openTensor(page, 'layer_1_attn_q_rope');
  await page.keyboard.press('w');
  await page.waitForFunction(() => document.querySelector('.place')?.textContent.startsWith('[5, 2, 1]'));
  await own.close();
  await page.close();
});

test('an address of a workspace that is gone leads to a new start', async (context) => {
  const page = await context.open('#/w/w00000000000000000000000000000000');
  await page.getByRole('alert').waitFor();
  await page.getByRole('button', { name: 'Start anew' }).click();
  await page.locator('.zone').first().waitFor();
  await page.context().close();
});

test('the browser had nothing to complain about', async (context) => {
  assert.deepEqual(context.complaints, []);
});
