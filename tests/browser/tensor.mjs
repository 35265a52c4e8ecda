// Looking at one tensor: worst elements, sliders, heat maps, mapping by hand.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { coordinates, golden, random, readSafetensors, safetensors, startServer, test } from './harness.mjs';
import { colours, compare, drop, eventually, fromDisk, openTensor, place, settled, until } from './steps.mjs';

const reference = golden('trace/reference.safetensors');
const candidate = golden('trace/rope_theta.safetensors');
const flatOf = (shape, index) => index.reduce((sum, value, axis) => sum * shape[axis] + value, 0);

test('the worst elements, their values and coordinates', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  const a = readSafetensors(readFileSync(reference)).layer_1_attn_q_rope;
  const b = readSafetensors(readFileSync(candidate)).layer_1_attn_q_rope;
  const order = a.values.map((_, i) => i).sort((x, y) => Math.abs(b.values[y] - a.values[y]) - Math.abs(b.values[x] - a.values[x]));
  await page.locator('.verdict h1 a').click();
  await page.locator('main.tensor .place').waitFor();
  await page.keyboard.press('w');
  for (let rank = 0; rank < 3; rank++) {
    const shown = await place(page, coordinates(a.shape, order[rank]));
    assert.equal(Math.fround(shown.a), a.values[order[rank]]);
    assert.equal(Math.fround(shown.b), b.values[order[rank]]);
    // The same element stands in the grid, marked, with its real coordinates and every digit.
    const cell = page.locator('td.value.here');
    await page.waitForFunction((text) => document.querySelector('td.value.here')?.title.startsWith(text), `[${coordinates(a.shape, order[rank]).join(', ')}] reference`);
    const [, first, second] = /reference (\S+), candidate (\S+),/.exec(await cell.getAttribute('title'));
    assert.equal(Math.fround(Number(first)), a.values[order[rank]]);
    assert.equal(Math.fround(Number(second)), b.values[order[rank]]);
    await page.getByRole('button', { name: /Next worst/ }).click();
  }
  await page.context().close();
});

test('sliders, numbers and typed coordinates move the place', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  const a = readSafetensors(readFileSync(reference)).layer_1_attn_q_rope;
  await openTensor(page, 'layer_1_attn_q_rope');
  const slider = page.getByLabel('axis 0, slider');
  await slider.focus();
  for (let i = 0; i < 3; i++) await page.keyboard.press('ArrowRight');
  await place(page, [3, 0, 0]);
  await page.getByLabel('axis 2, index').fill('15');
  await page.getByLabel('axis 2, index').press('Enter');
  const shown = await place(page, [3, 0, 15]);
  assert.equal(Math.fround(shown.a), a.values[flatOf(a.shape, [3, 0, 15])]);
  await page.getByPlaceholder(/go to/).fill('8, 1, -2');
  await page.getByRole('button', { name: 'Go', exact: true }).click();
  await place(page, [8, 1, 14]);
  await page.getByPlaceholder(/go to/).fill('9, 1, 0');
  await page.getByRole('button', { name: 'Go', exact: true }).click();
  await page.getByText('9 is outside axis 0').waitFor();
  // Another plane shows other neighbours: rows are heads no longer but tokens.
  await page.getByRole('radio', { name: 'axis 0 runs down' }).check();
  await page.waitForFunction(() => document.querySelectorAll('table.grid tbody tr').length === 9);
  await eventually(async () => {
    const title = await page.locator('table.grid tbody tr').nth(2).locator('td').first().getAttribute('title');
    const [, index, value] = /^\[([\d, ]+)\] reference (\S+),/.exec(title);
    assert.equal(Math.fround(Number(value)), a.values[flatOf(a.shape, index.split(',').map(Number))]);
    assert.equal(index.split(',')[0], '2');
  });
  await page.context().close();
});

test('clicking along an axis profile goes there', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  await openTensor(page, 'layer_1_attn_q_rope');
  const chart = page.locator('.profile svg').first();
  await settled(page); // panels that come late would push the chart away under the hand
  const box = await chart.boundingBox();
  await chart.click({ position: { x: box.width * (6.5 / 9), y: 20 } });
  await eventually(async () => assert.equal((await place(page)).index[0], 6));
  await page.context().close();
});

function withNan() {
  const next = random(9);
  const a = Array.from({ length: 40 * 60 }, next);
  const b = a.map((value) => value * (1 + 1e-7 * next()));
  for (let i = 0; i < 6; i++) b[(10 + i) * 60 + 30] = NaN;
  b[5] = Infinity;
  return [{ name: 'a.safetensors', bytes: safetensors({ x: { shape: [40, 60], values: a } }) }, { name: 'b.safetensors', bytes: safetensors({ x: { shape: [40, 60], values: b } }) }];
}

for (const painter of ['webgl2', 'canvas']) {
  test(`NaN cannot be overlooked in the heat map (${painter})`, async (context) => {
    const init = painter === 'webgl2' ? undefined : () => {
      const real = HTMLCanvasElement.prototype.getContext;
      HTMLCanvasElement.prototype.getContext = function (kind, ...rest) { return kind === 'webgl2' ? null : real.call(this, kind, ...rest); };
    };
    const page = await compare(context, ...withNan(), { init });
    await openTensor(page, 'x');
    await until(`it is drawn by ${painter}`, async () => await page.locator('.heat').getAttribute('data-painter') === painter);
    for (const what of ['Difference', 'Candidate', 'log |difference|']) {
      await page.getByRole('button', { name: what, exact: true }).click();
      await until(`${what} shows NaN in magenta`, async () => (await colours(page, '.heat')).magenta > 0.0008);
    }
    await page.getByRole('button', { name: 'Reference', exact: true }).click();
    await until('no NaN in the reference', async () => (await colours(page, '.heat')).magenta === 0);
    await until('the reference is drawn', async () => (await colours(page, '.heat')).distinct > 50);
    await page.getByRole('button', { name: 'First NaN' }).click();
    const shown = await place(page, [10, 30]);
    assert.match(shown.text, /B NaN/);
    await page.context().close();
  });
}

test('the map zooms to single elements, blinks and swipes', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  await openTensor(page, 'layer_1_attn_probs');
  await settled(page);
  await until('the map is drawn', async () => (await colours(page, '.heat')).distinct > 20);
  const far = (await colours(page, '.heat')).distinct;
  await page.locator('.heat').focus();
  for (let i = 0; i < 6; i++) await page.keyboard.press('+');
  await until('the address has the zoom', () => /z=/.test(page.url()));
  await until('the picture is another', async () => (await colours(page, '.heat')).distinct !== far);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  await eventually(async () => assert.deepEqual((await place(page)).index.slice(1), [1, 1]));
  await page.keyboard.press('b');
  const phases = new Set();
  await until('both are seen in turn', async () => { phases.add(await page.locator('.now-shown').innerText()); return phases.size === 2; });
  assert.deepEqual([...phases].sort(), ['candidate', 'reference']);
  await page.keyboard.press('s');
  await page.getByLabel('Place of the swipe').fill('0.25');
  await until('the address has the swipe', () => /swipe=0\.25/.test(page.url()));
  await page.context().close();
});

test('colours and their range change at once, and the legend with them', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  await openTensor(page, 'layer_1_attn_probs');
  await settled(page);
  const picture = async () => (await page.locator('.heat-picture').screenshot()).toString('base64');
  const legend = () => page.locator('.legend').getAttribute('aria-label');
  let before = await picture();
  await page.getByRole('combobox', { name: /^Colours/ }).selectOption('grey');
  await until('other colours', async () => await picture() !== before);
  before = await picture();
  const labels = await legend();
  await page.getByRole('combobox', { name: /^Range/ }).selectOption('typed');
  await page.getByLabel('highest value').fill('0.001');
  await page.getByLabel('highest value').press('Enter');
  await until('another range', async () => await picture() !== before);
  await eventually(async () => assert.match(await legend(), /to 0\.001$/));
  assert.notEqual(labels, await legend());
  await page.context().close();
});

test('borders of the grid say how a difference stands to the tolerance', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  const a = readSafetensors(readFileSync(reference)).layer_1_attn_q_rope;
  const b = readSafetensors(readFileSync(candidate)).layer_1_attn_q_rope;
  await openTensor(page, 'layer_1_attn_q_rope');
  await page.getByPlaceholder(/go to/).fill('5, 0, 0');
  await page.getByRole('button', { name: 'Go', exact: true }).click();
  await place(page, [5, 0, 0]);
  for (const [label, value] of [['relative tolerance', '0'], ['absolute tolerance', '0.02']]) {
    await page.getByLabel(label).fill(value);
    await page.getByLabel(label).press('Enter');
    await until('the address has it', () => (label.startsWith('relative') ? /tol=0,/ : /tol=0,0\.02/).test(page.url()));
  }
  const seen = new Set();
  await eventually(async () => {
    const cells = await page.locator('td.value').evaluateAll((all) => all.map((cell) => ({ title: cell.title, kind: ['same', 'near', 'off'].find((each) => cell.classList.contains(each)), tone: ['is-negative', 'is-positive', 'is-zero'].find((each) => cell.classList.contains(each)) })));
    assert.equal(cells.length, 4 * 10);
    for (const { title, kind, tone } of cells) {
      const index = /^\[([\d, ]+)\]/.exec(title)[1].split(',').map(Number);
      assert.equal(index[0], 5);
      const flat = flatOf(a.shape, index);
      const difference = Math.abs(b.values[flat] - a.values[flat]);
      assert.equal(kind, difference === 0 ? 'same' : difference <= 0.02 ? 'near' : 'off', title);
      assert.equal(tone, a.values[flat] < 0 ? 'is-negative' : 'is-positive', title);
      seen.add(kind);
    }
  });
  assert.ok(seen.has('near') && seen.has('off'));
  await page.context().close();
});

test('mapping by hand compares again at once and goes back', async (context) => {
  const next = random(4);
  const values = Array.from({ length: 6 * 4 }, next);
  const turned = Array.from({ length: 24 }, (_, i) => values[(i % 6) * 4 + Math.floor(i / 6)]); // [4, 6]
  const decoy = Array.from({ length: 6 * 4 }, next);
  const a = { name: 'a.safetensors', bytes: safetensors({ first: { shape: [6, 4], values } }) };
  const b = { name: 'b.safetensors', bytes: safetensors({ first: { shape: [6, 4], values: decoy }, other: { shape: [4, 6], values: turned } }) };
  const page = await compare(context, a, b);
  await openTensor(page, 'first');
  const error = async () => (await page.locator('.tensor-facts').innerText()).replace(/\s+/g, ' ');
  const before = await error();
  const panel = page.locator('section[aria-labelledby="mapping-title"]');
  await panel.getByRole('button', { name: 'Map by hand' }).click();
  await panel.getByLabel('Candidate').fill('no such tensor');
  await panel.getByRole('button', { name: 'Compare so' }).click();
  await panel.getByText('the candidate has no tensor').waitFor();
  await panel.getByLabel('Candidate').fill('other');
  await panel.getByLabel('Axis order').fill('1,0');
  await panel.getByRole('button', { name: 'Compare so' }).click();
  await page.getByText('mapped by hand').waitFor();
  await eventually(async () => assert.match(await error(), /error 0 /));
  await page.getByPlaceholder(/go to/).fill('5, 2');
  await page.getByRole('button', { name: 'Go', exact: true }).click();
  const shown = await place(page, [5, 2]);
  assert.equal(shown.a, shown.b);
  assert.equal(Math.fround(shown.a), Math.fround(values[22]));
  await panel.getByRole('button', { name: 'Back to what was found' }).click();
  await page.getByText('mapped by hand').waitFor({ state: 'detached' });
  await eventually(async () => assert.equal(await error(), before));
  await page.context().close();
});

test('a slice, an offset and swapped sides by hand', async (context) => {
  const next = random(8);
  const values = Array.from({ length: 8 * 5 }, next);
  const a = { name: 'a.safetensors', bytes: safetensors({ rows: { shape: [5, 5], values: values.slice(10, 35) } }) };
  const b = { name: 'b.safetensors', bytes: safetensors({ rows: { shape: [8, 5], values } }) };
  const page = await compare(context, a, b);
  await page.locator('.lines .line:not(.group) .c-name a', { hasText: 'rows' }).first().click();
  const panel = page.locator('section[aria-labelledby="mapping-title"]');
  await panel.waitFor();
  if (!await panel.getByRole('button', { name: 'Compare so' }).count()) await panel.getByRole('button', { name: 'Map by hand' }).click();
  await panel.getByRole('button', { name: 'Add a slice or an offset' }).click();
  await panel.getByLabel('count').fill('5');
  await panel.getByLabel('from').fill('2');
  await panel.getByLabel('from').press('Tab');
  await page.getByText('mapped by hand').waitFor();
  await until('the slice is equal', async () => / error 0 /.test((await page.locator('.tensor-facts').innerText()).replace(/\s+/g, ' ')));
  await page.keyboard.press('Escape');
  await panel.getByLabel('from').fill('1');
  await panel.getByLabel('from').press('Tab');
  await until('another slice is not', async () => !/ error 0 /.test((await page.locator('.tensor-facts').innerText()).replace(/\s+/g, ' ')));
  await page.getByPlaceholder(/go to/).fill('0, 0');
  await page.getByRole('button', { name: 'Go', exact: true }).click();
  const straight = await place(page, [0, 0]);
  assert.equal(Math.fround(straight.b), Math.fround(values[5]));
  await panel.getByLabel('swap the sides').check();
  await until('the sides are swapped', async () => (await place(page)).a === straight.b);
  // What the server refuses is said beside the form.
  await panel.getByLabel('from').fill('7');
  await panel.getByLabel('from').press('Tab');
  await panel.getByRole('alert').waitFor();
  await page.context().close();
});

test('the cause panel: sentence, confidence, numbers, what to check', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  const a = readSafetensors(readFileSync(reference)).layer_1_attn_q_rope.values;
  const b = readSafetensors(readFileSync(candidate)).layer_1_attn_q_rope.values;
  const error = Math.sqrt(a.reduce((sum, value, i) => sum + (b[i] - value) ** 2, 0) / a.reduce((sum, value) => sum + value ** 2, 0));
  await openTensor(page, 'layer_1_attn_q_rope');
  const panel = page.locator('section[aria-labelledby="cause-title"]');
  await eventually(async () => {
    const text = (await panel.innerText()).replace(/\s+/g, ' ');
    assert.match(text, /rotation/);
    assert.match(text, /theta = 1000000/);
    assert.match(text, /confidence (1|0\.99)/);
    assert.match(text, /all of the error's energy follows from it, less what 1 fitted number would explain by chance/);
    assert.match(text, /Check rope_theta/);
    assert.doesNotMatch(text, /tie/);
  });
  const measured = panel.locator('table.evidence tr', { hasText: 'size of the error' }).locator('td');
  assert.ok(Math.abs(Number(await measured.innerText()) / error - 1) < 1e-3, await measured.innerText());
  await page.context().close();
});

test('a tie of causes is said to be one', async (context) => {
  const file = (value) => ({ name: `${value}.safetensors`, bytes: safetensors({ x: { shape: [9, 16], values: Array(144).fill(value) } }) });
  const page = await compare(context, file(1), file(2));
  await eventually(async () => assert.match(await page.locator('.verdict').innerText(), /a tie: .*explains it as well/));
  await openTensor(page, 'x');
  const panel = page.locator('section[aria-labelledby="cause-title"]');
  await eventually(async () => assert.match(await panel.innerText(), /the data do not choose between them/));
  for (const id of ['scaled', 'offset']) await eventually(async () => assert.match(await panel.locator(`[data-cause="${id}"]`).innerText(), /a tie/));
  await page.context().close();
});

test('what was mapped by hand outlives the server', async (context) => {
  const values = Array.from({ length: 24 }, random(4));
  const turned = Array.from({ length: 24 }, (_, i) => values[(i % 6) * 4 + Math.floor(i / 6)]); // [4, 6]
  const own = await startServer(context.binary);
  const page = await context.prepare(await context.browser.newPage());
  await page.goto(own.url);
  await drop(page, 'a', [{ name: 'a.safetensors', bytes: safetensors({ first: { shape: [6, 4], values } }) }]);
  await page.locator('.zone[data-side="a"] .file').first().waitFor();
  await drop(page, 'b', [{ name: 'b.safetensors', bytes: safetensors({ first: { shape: [6, 4], values: values.map((value) => 3 * value + 1) }, other: { shape: [4, 6], values: turned } }) }]);
  await page.locator('main.overview').waitFor();
  await openTensor(page, 'first');
  const panel = page.locator('section[aria-labelledby="mapping-title"]');
  await panel.getByRole('button', { name: 'Map by hand' }).click();
  await panel.getByLabel('Candidate').fill('other');
  await panel.getByLabel('Axis order').fill('1,0');
  // Whoever goes back before the list is here sees it there all the same.
  await page.route(/\/tensors$/, async (route) => { await new Promise((resolve) => setTimeout(resolve, 1000)); await route.continue(); });
  await panel.getByLabel('Axis order').press('Tab');
  await page.getByText('mapped by hand').waitFor();
  await page.getByRole('button', { name: '← Overview' }).click();
  await eventually(async () => assert.match((await page.locator('.lines .line:not(.group)').first().innerText()).replace(/\s+/g, ' '), /first .*mapped by hand .* equal/));
  await page.unroute(/\/tensors$/);
  await page.goBack();
  await page.getByText('mapped by hand').waitFor();
  const next = await own.restart();
  await page.reload();
  await page.getByText('mapped by hand').waitFor();
  await eventually(async () => assert.match((await page.locator('.tensor-facts').innerText()).replace(/\s+/g, ' '), /error 0 /));
  await eventually(async () => assert.equal(await panel.getByLabel('Candidate').inputValue(), 'other'));
  assert.equal(await panel.getByLabel('Axis order').inputValue(), '1,0');
  await panel.getByRole('button', { name: 'Back to what was found' }).click();
  await page.getByText('mapped by hand').waitFor({ state: 'detached' });
  await page.close();
  await next.close();
});

test('the keyboard goes from tensor to tensor', async (context) => {
  const page = await compare(context, fromDisk(reference), fromDisk(candidate));
  const title = () => page.locator('main.tensor h1').innerText();
  await page.keyboard.press('n');
  await page.locator('main.tensor h1').waitFor();
  await eventually(async () => assert.equal(await title(), 'layer_1_attn_q_rope'));
  await page.keyboard.press('j');
  await page.waitForFunction(() => document.querySelector('main.tensor h1')?.textContent === 'layer_1_attn_k_rope');
  await page.keyboard.press('k');
  await page.keyboard.press('k');
  await page.waitForFunction(() => document.querySelector('main.tensor h1')?.textContent === 'layer_1_attn_k_normed');
  await page.keyboard.press('?');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await page.keyboard.press('/');
  await page.waitForFunction(() => document.activeElement?.getAttribute('type') === 'search');
  await page.context().close();
});
