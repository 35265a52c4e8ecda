// From dropping files to the list: uploads, verdict, sorting, grouping, addresses.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { golden, random, readSafetensors, safetensors, test } from './harness.mjs';
import { choose, compare, done, download, drop, fromDisk, openTensor, place, until } from './steps.mjs';

const reference = golden('trace/reference.safetensors');
const candidate = golden('trace/rope_theta.safetensors');

test('two dropped archives lead to the first divergence and its cause', async (context) => {
  const page = await compare(context, fromDisk(golden('archives/model1_tp8.zip')), fromDisk(golden('archives/model2_tp1.zip')));
  const verdict = await page.locator('.verdict').innerText();
  assert.match(verdict, /4_post_mlp is the first to diverge/);
  assert.match(verdict, /token 3, channel 17/); // where the archives' one planted fault is
  assert.match(verdict, /1 of 26 tensors differ/);
  await page.locator('.chip', { hasText: 'differs' }).click();
  assert.equal(await page.locator('.lines .line.first .name').first().innerText(), '4_post_mlp');
  const header = await page.locator('header.top').innerText();
  assert.match(header, /model1_tp8\.zip/);
  assert.match(header, /model2_tp1\.zip/);
  await page.context().close();
});

test('uploads show their progress, and what was cut off goes on after a reload', async (context) => {
  const page = await context.open();
  const network = await page.context().newCDPSession(page);
  await network.send('Network.enable');
  await network.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 1_500_000 });
  const next = random(5);
  const big = { name: 'big.safetensors', bytes: safetensors({ weight: { shape: [1500, 1000], values: Array.from({ length: 1_500_000 }, next) } }) };
  await drop(page, 'a', [big]);
  const seen = new Set();
  for (let i = 0; i < 200; i++) {
    const now = await page.getByRole('progressbar', { name: /upload of big/ }).getAttribute('aria-valuenow').catch(() => null);
    if (now !== null) seen.add(Number(now));
    if ([...seen].some((value) => value > 30)) break;
    await page.waitForTimeout(30);
  }
  assert.ok([...seen].some((value) => value > 0 && value < 100), `progress was ${[...seen]}`);
  const address = page.url();
  assert.match(address, /#\/w\/w/);
  await page.reload();
  await page.getByText('cut off: choose the same file again').waitFor();
  await network.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  assert.equal(page.url(), address);
  await drop(page, 'a', [big]);
  await page.getByText(/went on after .* that had arrived before/).waitFor();
  await page.getByRole('button', { name: 'Look at it alone' }).click();
  await done(page);
  assert.match(await page.locator('.verdict').innerText(), /1 tensor, one input alone/);
  await page.context().close();
});

test('an upload can be cancelled', async (context) => {
  const page = await context.open();
  const network = await page.context().newCDPSession(page);
  await network.send('Network.enable');
  await network.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 300_000 });
  await choose(page, 'b', [{ name: 'slow.npy', bytes: Buffer.alloc(6_000_000) }]);
  await page.getByRole('button', { name: 'Cancel slow.npy' }).click();
  await page.locator('.zone[data-side="b"] .file').waitFor({ state: 'detached' });
  const id = /#\/w\/(\w+)/.exec(page.url())[1];
  await assert.doesNotReject(async () => {
    for (let i = 0; i < 50; i++) {
      const state = await page.evaluate(async (which) => (await fetch(`/api/v1/workspaces/${which}`)).json(), id);
      if (!state.b) return;
      await page.waitForTimeout(100);
    }
    throw new Error('the server still has the file');
  });
  await page.context().close();
});

test('sorting and grouping never change what a row opens', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  const a = readSafetensors(readFileSync(reference));
  const b = readSafetensors(readFileSync(candidate));
  const error = (name) => {
    let up = 0;
    let down = 0;
    a[name].values.forEach((value, i) => { up += (b[name].values[i] - value) ** 2; down += value ** 2; });
    return Math.sqrt(up / down);
  };
  const worst = Object.keys(a).sort((x, y) => error(y) - error(x));
  await page.getByLabel('Group by').selectOption('none');
  await page.getByLabel('Sort by').selectOption('error');
  const names = await page.locator('.lines .line .c-name .name').allInnerTexts();
  assert.deepEqual(names.slice(0, 5), worst.slice(0, 5));
  for (const row of [0, 3]) {
    await page.locator('.lines .line').nth(row).click();
    await page.locator('main.tensor .place').waitFor();
    assert.equal(await page.locator('main.tensor h1').innerText(), worst[row]);
    // What is shown are its values and nobody else's.
    const shown = await place(page);
    assert.equal(Math.fround(shown.a), a[worst[row]].values[0]);
    assert.equal(Math.fround(shown.b), b[worst[row]].values[0]);
    await page.getByRole('button', { name: '← Overview' }).click();
  }
  assert.match(page.url(), /sort=error/);
  await page.getByRole('button', { name: 'tensor', exact: true }).click();
  assert.equal(await page.locator('.lines .line .c-name .name').first().innerText(), Object.keys(a).sort()[0]);
  await page.getByLabel('Group by').selectOption('stage');
  await page.getByRole('button', { name: 'Collapse all' }).click();
  await until('all is shut', async () => await page.locator('.lines .line:not(.group)').count() === 0);
  await page.getByRole('button', { name: 'Expand all' }).click();
  await page.locator('.chip', { hasText: 'differs' }).click();
  const left = await page.locator('.lines .line:not(.group) .mark').allInnerTexts();
  assert.ok(left.length > 10 && left.every((text) => text.includes('✗')), left.join());
  await page.context().close();
});

test('a reload and a copied address keep the view', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  await page.getByLabel('Sort by').selectOption('cosine');
  await openTensor(page, 'layer_1_attn_k_rope');
  await page.getByLabel('axis 0, index').fill('4');
  await page.getByLabel('axis 0, index').press('Enter');
  await page.getByRole('radio', { name: 'axis 0 runs down' }).check();
  await page.getByRole('button', { name: 'Candidate', exact: true }).click();
  await page.getByRole('button', { name: 'Closer' }).click();
  await page.getByRole('button', { name: 'Closer' }).click();
  await until('the address has the zoom', async () => {
    const now = page.url();
    await page.waitForTimeout(600);
    return /z=/.test(now) && /axes=/.test(now) && page.url() === now;
  });
  const before = { url: page.url(), place: (await place(page)).text };
  await page.reload();
  const check = async (where) => {
    await where.locator('main.tensor .place').waitFor();
    assert.equal((await place(where)).text, before.place);
    assert.equal(await where.locator('main.tensor h1').innerText(), 'layer_1_attn_k_rope');
    assert.equal(await where.getByRole('button', { name: 'Candidate', exact: true }).getAttribute('aria-pressed'), 'true');
    assert.equal(await where.getByRole('radio', { name: 'axis 0 runs down' }).isChecked(), true);
    assert.equal(where.url(), before.url);
    await where.getByRole('button', { name: '← Overview' }).click();
    assert.equal(await where.getByLabel('Sort by').inputValue(), 'cosine');
  };
  await check(page);
  const other = await context.open(new URL(before.url).hash);
  await check(other);
  await other.context().close();
  await page.goBack();
  await page.locator('main.tensor h1').waitFor();
  await page.context().close();
});

test('compared again with a layer offset and with tolerances', async (context) => {
  const page = await compare(context, fromDisk(golden('archives/model1_tp8.zip')), fromDisk(golden('archives/model2_tp1.zip')));
  const again = async (label, value) => {
    await page.getByRole('button', { name: 'Compare again, otherwise' }).click();
    await page.getByLabel(label).fill(value);
    await page.getByRole('button', { name: 'Compare again', exact: true }).click();
    await page.getByRole('button', { name: 'Compare again', exact: true }).waitFor({ state: 'detached' });
    await done(page);
  };
  await again('Layer offset', '3');
  assert.match(await page.locator('.verdict').innerText(), /4_post_mlp is the first to diverge/);
  await again('atol', '100');
  assert.match(await page.locator('.verdict').innerText(), /agree|match/);
  await page.context().close();
});

test('light and dark, by the system and by the switch', async (context) => {
  const page = await context.open('', { colorScheme: 'dark' });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  const night = await ground();
  await page.getByRole('button', { name: 'Use light colours' }).click();
  const day = await ground();
  assert.notEqual(day, night);
  await page.reload();
  await page.getByRole('heading', { level: 1 }).waitFor();
  assert.equal(await ground(), day);
  await page.context().close();
});

test('reports, slices and pictures can be taken away', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  const html = await download(page, () => page.getByRole('link', { name: 'HTML report' }).click());
  assert.match(html.text.toString(), /layer_1_attn_q_rope/);
  const json = await download(page, () => page.getByRole('link', { name: 'JSON', exact: true }).click());
  assert.equal(JSON.parse(json.text.toString()).first_divergence.name, 'layer_1_attn_q_rope');
  const map = await download(page, () => page.getByRole('link', { name: 'Map file' }).click());
  assert.match(map.text.toString(), /layer_1_attn_q_rope/);
  await openTensor(page, 'layer_1_attn_q_rope');
  const slice = await download(page, () => page.getByRole('button', { name: 'CSV of this slice' }).click());
  const lines = slice.text.toString().trim().split('\n');
  assert.equal(lines[0], 'axis0,axis1,axis2,reference,candidate,difference');
  const a = readSafetensors(readFileSync(reference)).layer_1_attn_q_rope;
  for (const line of lines.slice(1)) {
    const [i, j, k, value] = line.split(',').map(Number);
    assert.equal(Math.fround(value), a.values[(i * a.shape[1] + j) * a.shape[2] + k]);
  }
  const picture = await download(page, () => page.getByRole('button', { name: 'PNG' }).click());
  assert.equal(picture.text.subarray(1, 4).toString(), 'PNG');
  assert.ok(picture.text.length > 4000);
  await page.context().close();
});

test('one input alone: statistics, health, heat map', async (context) => {
  const page = await context.open();
  const values = Array.from({ length: 64 * 48 }, random(3));
  values[100] = NaN;
  await drop(page, 'a', [{ name: 'alone.safetensors', bytes: safetensors({ 'layers.0.weight': { shape: [64, 48], values }, 'layers.1.weight': { shape: [8], values: Array(8).fill(2) } }) }]);
  await page.getByRole('button', { name: 'Look at it alone' }).click();
  await done(page);
  assert.match(await page.locator('main').innerText(), /layers\.0\.weight/);
  assert.match(await page.locator('section[aria-labelledby="health-title"]').innerText(), /NaN/i);
  await openTensor(page, 'layers.0.weight');
  await page.getByRole('button', { name: 'First NaN' }).click();
  const shown = await place(page);
  assert.deepEqual(shown.index, [2, 4]);
  assert.match(shown.text, /NaN/);
  assert.equal(await page.getByRole('button', { name: 'Candidate' }).count(), 0);
  await page.context().close();
});
