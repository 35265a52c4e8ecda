// From dropping files to the list: uploads, verdict, sorting, grouping, addresses.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { golden, random, readSafetensors, safetensors, startServer, test } from './harness.mjs';
import { choose, compare, done, download, dragFromDisk, drop, eventually, fromDisk, openTensor, place, settled, until } from './steps.mjs';

const reference = golden('trace/reference.safetensors');
const candidate = golden('trace/rope_theta.safetensors');

test('two dropped archives lead to the first divergence and its cause', async (context) => {
  const page = await compare(context, fromDisk(golden('archives/model1_tp8.zip')), fromDisk(golden('archives/model2_tp1.zip')));
  await eventually(async () => {
    const verdict = await page.locator('.verdict').innerText();
    assert.match(verdict, /4_post_mlp is the first to diverge/);
    assert.match(verdict, /token 3, channel 17/); // where the archives' one planted fault is
    assert.match(verdict, /1 of 26 tensors differ/);
  });
  await page.locator('.chip', { hasText: 'differs' }).click();
  await eventually(async () => assert.deepEqual(await page.locator('.lines .line:not(.group) .name').allInnerTexts(), ['4_post_mlp']));
  await eventually(async () => assert.equal(await page.locator('.lines .line.first .name').first().innerText(), '4_post_mlp'));
  await eventually(async () => {
    const header = await page.locator('header.top').innerText();
    assert.match(header, /model1_tp8\.zip/);
    assert.match(header, /model2_tp1\.zip/);
  });
  await page.context().close();
});

// Uploads go at so many bytes a second; gives what changes that.
async function throttled(page, bytes) {
  const network = await page.context().newCDPSession(page);
  await network.send('Network.enable');
  const throttle = (uploadThroughput) => network.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput });
  await throttle(bytes);
  return throttle;
}

test('uploads show their progress, and what was cut off goes on after a reload', async (context) => {
  const page = await context.open();
  const throttle = await throttled(page, 100_000); // a minute: it is not over before the reload
  const next = random(5);
  const big = { name: 'big.safetensors', bytes: safetensors({ weight: { shape: [1500, 1000], values: Array.from({ length: 1_500_000 }, next) } }) };
  // Every state of the bar is written down in the page itself: none is missed however slow this side looks.
  await page.evaluate(() => {
    window.progressSeen = [];
    new MutationObserver(() => {
      const now = document.querySelector('.zone [role=progressbar]')?.getAttribute('aria-valuenow');
      if (now !== null && now !== undefined) window.progressSeen.push(Number(now));
    }).observe(document.body, { subtree: true, childList: true, attributes: true });
  });
  await drop(page, 'a', [big]);
  await until('progress between nothing and all', () => page.evaluate(() => window.progressSeen.some((value) => value > 0 && value < 100)));
  const address = page.url();
  assert.match(address, /#\/w\/w/);
  await page.reload();
  await page.getByText('cut off: choose the same file again').waitFor();
  await throttle(-1);
  assert.equal(page.url(), address);
  await drop(page, 'a', [big]);
  await page.getByText(/went on after .* that had arrived before/).waitFor();
  await page.getByRole('button', { name: 'Look at it alone' }).click();
  await done(page);
  await eventually(async () => assert.match(await page.locator('.verdict').innerText(), /1 tensor, one input alone/));
  await page.context().close();
});

test('an upload can be cancelled', async (context) => {
  const page = await context.open();
  await throttled(page, 50_000);
  await choose(page, 'b', [{ name: 'slow.npy', bytes: Buffer.alloc(6_000_000) }]);
  await page.getByRole('button', { name: 'Cancel slow.npy' }).click();
  await page.locator('.zone[data-side="b"] .file').waitFor({ state: 'detached' });
  const id = /#\/w\/(\w+)/.exec(page.url())[1];
  await until('the server no longer has the file', async () => {
    const state = await page.evaluate(async (which) => (await fetch(`/api/v1/workspaces/${which}`)).json(), id);
    return !state.b;
  });
  await page.context().close();
});

// A run as tools dump it: a folder of folders, odd names, more files than a browser hands out at once.
function dumpFolder(factor) {
  const folder = mkdtempSync(path.join(tmpdir(), 'tsleuth-drop-'));
  const next = random(7);
  const npy = (values) => {
    const header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${values.length},), }`.padEnd(117) + '\n';
    const size = Buffer.alloc(2);
    size.writeUInt16LE(header.length);
    return Buffer.concat([Buffer.from('\x93NUMPY\x01\x00', 'latin1'), size, Buffer.from(header, 'latin1'), Buffer.from(Float32Array.from(values).buffer)]);
  };
  const names = [];
  for (const [inside, count] of [['layers/0', 2], ['layers/1/attn & mlp', 2], ['many', 130], ['ünïcode #%?', 1]]) {
    mkdirSync(path.join(folder, 'run', inside), { recursive: true });
    for (let i = 0; i < count; i++) {
      names.push(`run/${inside}/${i}.npy`);
      writeFileSync(path.join(folder, names.at(-1)), npy(Array.from({ length: 6 }, () => (inside === 'layers/1/attn & mlp' ? factor : 1) * next())));
    }
  }
  return { folder, names };
}

test('whole folders are dropped and chosen; files keep their place in them', async (context) => {
  const page = await context.open();
  const a = dumpFolder(1);
  const b = dumpFolder(2);
  const stored = async (side) => {
    const id = /#\/w\/(\w+)/.exec(page.url())[1];
    const state = await page.evaluate(async (which) => (await fetch(`/api/v1/workspaces/${which}`)).json(), id);
    return (state[side]?.files ?? []).filter((file) => file.complete).map((file) => file.name).sort();
  };
  await dragFromDisk(page, 'a', [path.join(a.folder, 'run')]);
  await eventually(async () => assert.deepEqual(await stored('a'), [...a.names].sort()));
  // The other side through the dialog for folders.
  await page.locator('.zone[data-side="b"] input[type=file]').nth(1).setInputFiles(path.join(b.folder, 'run'));
  await done(page);
  assert.deepEqual(await stored('b'), [...b.names].sort());
  await eventually(async () => assert.match(await page.locator('.verdict').innerText(), /2 of 135 tensors differ/));
  await page.locator('.chip', { hasText: 'differs' }).click();
  await eventually(async () => assert.deepEqual((await page.locator('.lines .line:not(.group) .c-name .name').allInnerTexts()).map((name) => name.replace(/^.*attn & mlp/, '')), ['/0', '/1']));
  for (const each of [a, b]) rmSync(each.folder, { recursive: true });
  await page.context().close();
});

test('loose files and folders together in one drop', async (context) => {
  const page = await context.open();
  const dump = dumpFolder(1);
  await dragFromDisk(page, 'a', [reference, path.join(dump.folder, 'run', 'layers')]);
  await page.getByRole('button', { name: 'Look at it alone' }).click();
  await done(page);
  const inside = dump.names.filter((name) => name.startsWith('run/layers')).map((name) => name.slice(4));
  await eventually(async () => assert.match(await page.locator('.verdict').innerText(), new RegExp(`${Object.keys(readSafetensors(readFileSync(reference))).length + inside.length} tensors`)));
  rmSync(dump.folder, { recursive: true });
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
  const names = () => page.locator('.lines .line .c-name .name').allInnerTexts();
  await eventually(async () => assert.deepEqual((await names()).slice(0, 5), worst.slice(0, 5)));
  for (const row of [0, 3]) {
    await page.locator('.lines .line').nth(row).click();
    await page.locator('main.tensor .place').waitFor();
    await eventually(async () => assert.equal(await page.locator('main.tensor h1').innerText(), worst[row]));
    // What is shown are its values and nobody else's.
    const shown = await place(page);
    assert.equal(Math.fround(shown.a), a[worst[row]].values[0]);
    assert.equal(Math.fround(shown.b), b[worst[row]].values[0]);
    await page.getByRole('button', { name: '← Overview' }).click();
    await eventually(async () => assert.deepEqual((await names()).slice(0, 5), worst.slice(0, 5)));
  }
  await eventually(() => assert.match(page.url(), /sort=error/));
  await page.getByRole('button', { name: 'tensor', exact: true }).click();
  await eventually(async () => assert.equal((await names())[0], Object.keys(a).sort()[0]));
  await page.getByLabel('Group by').selectOption('stage');
  await page.getByRole('button', { name: 'Collapse all' }).click();
  await until('all is shut', async () => await page.locator('.lines .line:not(.group)').count() === 0);
  await page.getByRole('button', { name: 'Expand all' }).click();
  await page.locator('.chip', { hasText: 'differs' }).click();
  await eventually(async () => {
    const left = await page.locator('.lines .line:not(.group) .mark').allInnerTexts();
    assert.ok(left.length > 10 && left.every((text) => text.includes('✗')), left.join());
  });
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
  const zoom = () => new URLSearchParams(new URL(page.url()).hash.split('?')[1]).get('z');
  const zooms = [null];
  for (let i = 0; i < 2; i++) {
    await settled(page);
    await page.getByRole('button', { name: 'Closer' }).click();
    await until('the address has the zoom', () => zoom() !== zooms.at(-1));
    zooms.push(zoom());
  }
  await until('the address has the plane', () => /axes=/.test(page.url()) && /at=4,0,0/.test(page.url()) && /view=b/.test(page.url()));
  const before = { url: page.url(), place: (await place(page, [4, 0, 0])).text };
  await page.reload();
  const check = async (where) => {
    await where.locator('main.tensor .place').waitFor();
    await settled(where);
    assert.equal((await place(where)).text, before.place);
    assert.equal(await where.locator('main.tensor h1').innerText(), 'layer_1_attn_k_rope');
    assert.equal(await where.getByRole('button', { name: 'Candidate', exact: true }).getAttribute('aria-pressed'), 'true');
    assert.equal(await where.getByRole('radio', { name: 'axis 0 runs down' }).isChecked(), true);
    assert.equal(where.url(), before.url);
    await where.getByRole('button', { name: '← Overview' }).click();
    await eventually(async () => assert.equal(await where.getByLabel('Sort by').inputValue(), 'cosine'));
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
  await eventually(async () => assert.match(await page.locator('.verdict').innerText(), /4_post_mlp is the first to diverge/));
  await again('atol', '100');
  await eventually(async () => assert.match(await page.locator('.verdict').innerText(), /agree|match/));
  await page.context().close();
});

test('a long comparison shows how far it is, and can be cancelled', async (context) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tsleuth-long-'));
  for (const name of ['a', 'b']) { // zeros that the disk does not hold, longer than any test waits
    const size = 2 ** 28;
    const entries = Object.fromEntries(Array.from({ length: 240 }, (_, i) => [`layers.${i}.x`, { dtype: 'F32', shape: [64, 2 ** 20], data_offsets: [i * size, (i + 1) * size] }]));
    const header = Buffer.from(JSON.stringify(entries));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.length));
    writeFileSync(path.join(folder, `${name}.safetensors`), Buffer.concat([length, header]));
    truncateSync(path.join(folder, `${name}.safetensors`), 8 + header.length + 240 * size);
  }
  const own = await startServer(context.binary, [path.join(folder, 'a.safetensors'), path.join(folder, 'b.safetensors')]);
  const page = await context.prepare(await context.browser.newPage());
  await page.goto(own.url);
  const bar = page.getByRole('progressbar');
  const seen = new Set();
  await until('the bar moves', async () => { seen.add(Number(await bar.getAttribute('aria-valuenow'))); return [...seen].filter((value) => value > 0 && value < 100).length > 1; });
  await page.getByRole('button', { name: 'Cancel' }).click();
  await eventually(async () => assert.match(await page.getByRole('alert').innerText(), /cancelled\s+run it again/));
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await bar.waitFor();
  await own.close();
  await page.close();
  rmSync(folder, { recursive: true });
});

test('the chart names what is pointed at, and a click opens it', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  const chart = page.locator('.chart canvas');
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  const name = 'layer_1_attn_k_rope';
  let found = 0;
  await until(`${name} is pointed at`, async () => {
    for (let x = box.width * 0.3; x < box.width * 0.7; x += 3) {
      await page.mouse.move(box.x + x, box.y + 40);
      found = box.x + x;
      if ((await page.locator('.chart-note').innerText()).includes(name)) return true;
    }
    return false;
  });
  await page.mouse.click(found, box.y + 40);
  await eventually(async () => assert.equal(await page.locator('main.tensor h1').innerText(), name));
  await page.context().close();
});

test('light and dark, by the system and by the switch', async (context) => {
  const page = await context.open('', { colorScheme: 'dark' });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await eventually(async () => assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark'));
  const night = await ground();
  await page.getByRole('button', { name: 'Use light colours' }).click();
  await eventually(async () => assert.notEqual(await ground(), night));
  const day = await ground();
  await page.reload();
  await page.getByRole('heading', { level: 1 }).waitFor();
  await eventually(async () => assert.equal(await ground(), day));
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
  await settled(page);
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
  await eventually(async () => assert.match(await page.locator('main').innerText(), /layers\.0\.weight/));
  await eventually(async () => assert.match(await page.locator('section[aria-labelledby="health-title"]').innerText(), /NaN/i));
  await eventually(async () => assert.match(await page.locator('.lines .line', { hasText: 'layers.0.weight' }).locator('.c-mark').innerText(), /fault|warning/));
  const json = await download(page, () => page.getByRole('link', { name: 'JSON', exact: true }).click());
  assert.equal(JSON.parse(json.text.toString()).rows.length, 2);
  const table = await download(page, () => page.getByRole('button', { name: 'CSV', exact: true }).click());
  assert.equal(table.text.toString().trim().split('\n').length, 3);
  await openTensor(page, 'layers.0.weight');
  const finite = values.map(Math.fround).filter((value) => !Number.isNaN(value));
  const statistic = (name) => page.locator('section[aria-labelledby="statistics-title"] tr', { has: page.getByRole('rowheader', { name, exact: true }) }).locator('td').getAttribute('title');
  await eventually(async () => assert.equal(Number(await statistic('min')), Math.min(...finite)));
  await eventually(async () => assert.equal(Number(await statistic('max')), Math.max(...finite)));
  await eventually(async () => assert.equal(await statistic('nan'), '1'));
  await page.getByRole('button', { name: 'First NaN' }).click();
  const shown = await place(page, [2, 4]);
  assert.match(shown.text, /NaN/);
  assert.equal(await page.getByRole('button', { name: 'Candidate' }).count(), 0);
  await page.context().close();
});
