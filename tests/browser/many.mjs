// Ten thousand tensors: few rows in the page at any time, and always the right ones.
import assert from 'node:assert/strict';
import { random, safetensors, test } from './harness.mjs';
import { compare, done, eventually, place, until } from './steps.mjs';

const count = 10_000;
const mostRows = 150;
const tall = 36; // of a row
const name = (i) => `layers.${Math.floor(i / 100)}.t${String(i % 100).padStart(2, '0')}`;
// A thousand of them are wrong, each by another share.
const wrong = (i) => (i >= 4000 && i < 5000 ? 0.1 + 0.001 * ((i * 7919) % 1000) : 0);

export function tenThousand() {
  const next = random(6);
  const values = Array.from({ length: count }, () => Array.from({ length: 8 }, next));
  const file = (factor) => safetensors(Object.fromEntries(values.map((each, i) => [name(i), { shape: [8], values: each.map((value) => value * factor(i)) }])));
  return { values, a: { name: 'a.safetensors', bytes: file(() => 1) }, b: { name: 'b.safetensors', bytes: file((i) => 1 + wrong(i)) } };
}

// The list as a person sees it: what the row in the middle of the window is, and which one belongs there.
const inTheMiddle = (page) => page.evaluate((height) => {
  const box = document.querySelector('.lines').getBoundingClientRect();
  const y = Math.max(box.top, Math.min(innerHeight / 2, box.bottom - 1));
  const row = document.elementsFromPoint(box.left + 60, y).map((each) => each.closest('.line')).find(Boolean);
  return { index: Math.floor((y - box.top) / height), id: row?.dataset.id ?? '', text: row?.querySelector('.name, bdi')?.textContent ?? '' };
}, tall);

async function expectList(page, items) {
  await until(`${items.length} lines`, async () => await page.getByRole('table', { name: 'Tensors' }).getAttribute('aria-rowcount') === String(items.length + 1));
  for (const part of [0, 0.31, 0.77, 1]) {
    await page.evaluate((share) => {
      const box = document.querySelector('.lines').getBoundingClientRect();
      scrollTo(0, scrollY + box.top + share * box.height - innerHeight / 2);
    }, part);
    await eventually(async () => {
      const seen = await inTheMiddle(page);
      const item = items[seen.index];
      assert.deepEqual({ id: seen.id, text: seen.text }, typeof item === 'string' ? { id: '', text: item } : { id: String(item), text: name(item) }, `at ${part}, line ${seen.index}`);
    });
  }
}

test('ten thousand tensors: few rows in the page, and the right ones', async (context) => {
  const { values, a, b } = tenThousand();
  const page = await compare(context, a, b);
  await page.evaluate(() => { // the most rows there ever were
    window.mostRows = 0;
    const count = () => { window.mostRows = Math.max(window.mostRows, document.querySelectorAll('.lines .line').length); };
    count();
    new MutationObserver(count).observe(document.body, { childList: true, subtree: true });
  });
  const all = Array.from({ length: count }, (_, i) => i);
  const layers = Array.from({ length: 100 }, (_, layer) => [`layer ${layer}`, ...all.slice(100 * layer, 100 * layer + 100)]);
  await expectList(page, layers.flat());

  await page.getByRole('button', { name: 'Collapse all' }).click();
  await expectList(page, layers.map(([label]) => label));
  await page.evaluate(() => scrollTo(0, 0));
  await page.locator('.line.group .fold', { has: page.locator('bdi', { hasText: /^layer 2$/ }) }).click();
  await expectList(page, layers.flatMap((layer, i) => (i === 2 ? layer : [layer[0]])));
  await page.getByRole('button', { name: 'Expand all' }).click();
  await expectList(page, layers.flat());

  await page.getByLabel('Group by').selectOption('none');
  await page.getByLabel('Sort by').selectOption('error');
  const worst = [...all].sort((x, y) => wrong(y) - wrong(x) || x - y);
  await expectList(page, worst);
  await page.getByLabel('Sort by').selectOption('name');
  await expectList(page, all);
  await page.getByLabel('Sort by').selectOption('error');
  await page.locator('.chip', { hasText: 'differs' }).click();
  await expectList(page, worst.slice(0, 1000));
  await page.locator('.chip', { hasText: 'differs' }).click();
  await page.getByLabel('Group by').selectOption('verdict');
  await page.getByLabel('Search tensors').fill('layers.47.t3');
  await until('ten of one layer', async () => await page.locator('.lines .line:not(.group)').count() === 10);
  const found = all.filter((i) => name(i).includes('layers.47.t3')).sort((x, y) => wrong(y) - wrong(x));
  assert.deepEqual(await page.locator('.lines .line:not(.group)').evaluateAll((rows) => rows.map((row) => row.dataset.id)), found.map(String));
  await page.getByLabel('Search tensors').fill('layers.57.t31');
  await page.locator('.lines .line', { hasText: 'layers.57.t31' }).click();
  await eventually(async () => assert.equal(await page.locator('main.tensor h1').innerText(), name(5731)));
  assert.equal(Math.fround((await place(page)).a), Math.fround(values[5731][0]));
  assert.ok(await page.evaluate(() => window.mostRows) < mostRows, `${await page.evaluate(() => window.mostRows)} rows at once`);
  // Jumping from one that differs to the next, and back to where the list was left.
  await page.getByRole('button', { name: '← Overview' }).click();
  await page.getByLabel('Search tensors').fill('');
  await page.getByLabel('Group by').selectOption('layer');
  await page.getByLabel('Sort by').selectOption('order');
  await expectList(page, layers.flat());
  const before = await page.evaluate(() => scrollY);
  await page.keyboard.press('Escape'); // out of the search
  await page.keyboard.press('n');
  await eventually(async () => assert.equal(await page.locator('main.tensor h1').innerText(), name(4000)));
  await page.keyboard.press('o');
  await done(page);
  await eventually(async () => assert.equal(await page.evaluate(() => scrollY), before));
  await page.context().close();
});
