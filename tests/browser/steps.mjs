// What a person does on the page, as the tests write it down.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';

// Files given to the drop zone of a side as a drag would: [{ name, bytes }].
export async function drop(page, side, files) {
  const data = await page.evaluateHandle((list) => {
    const transfer = new DataTransfer();
    for (const { name, text } of list) transfer.items.add(new File([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))], name, { lastModified: 1_700_000_000_000 }));
    return transfer;
  }, files.map(({ name, bytes }) => ({ name, text: bytes.toString('base64') })));
  await page.dispatchEvent(`.zone[data-side="${side}"]`, 'dragenter', { dataTransfer: data });
  await page.dispatchEvent(`.zone[data-side="${side}"]`, 'drop', { dataTransfer: data });
}

// Files and folders of this machine, dragged and dropped as the browser itself does it: folders are real ones.
export async function dragFromDisk(page, side, paths) {
  const session = await page.context().newCDPSession(page);
  const zone = page.locator(`.zone[data-side="${side}"]`);
  await zone.scrollIntoViewIfNeeded();
  const box = await zone.boundingBox();
  const where = { x: box.x + box.width / 2, y: box.y + 30, data: { items: [], files: paths, dragOperationsMask: 1 } };
  for (const type of ['dragEnter', 'dragOver', 'drop']) await session.send('Input.dispatchDragEvent', { type, ...where });
  await session.detach();
}

export const fromDisk = (file) => ({ name: path.basename(file), bytes: readFileSync(file) });

// Choosing through the file dialog; gives the side's files to its hidden input.
export const choose = (page, side, files) => page.locator(`.zone[data-side="${side}"] input[type=file]`).first()
  .setInputFiles(files.map(({ name, bytes }) => ({ name, mimeType: 'application/octet-stream', buffer: bytes })));

export const done = (page) => page.locator('main.overview').waitFor();

// A whole comparison: two files in, the overview out.
export async function compare(context, a, b, options) {
  const page = await context.open('', options);
  await drop(page, 'a', [a]);
  await page.locator('.zone[data-side="a"] .file').first().waitFor();
  await drop(page, 'b', [b]);
  await done(page);
  return page;
}

export async function openTensor(page, name) {
  await page.getByLabel('Search tensors').fill(name);
  await page.locator('.lines .line:not(.group) .c-name a', { hasText: name }).first().click();
  await page.locator('main.tensor .place').waitFor();
}

// What is read right after an action may be what was there before it: reads and asserts again until it holds, and gives
// back what the last reading gave. When it never holds, the failure is that of the last reading.
export const patience = 60_000;
export async function eventually(body) {
  const end = Date.now() + patience;
  for (;;) {
    try {
      return await body();
    } catch (error) {
      if (Date.now() > end) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// Waits until something holds; says what it was when it never does.
export const until = (what, holds) => eventually(async () => {
  if (!await holds()) throw new Error(`in ${patience / 1000} s it did not come to this: ${what}`);
});

// Everything a tensor's view fetches is there and drawn.
export async function settled(page) {
  await until('the view is complete', () => page.evaluate(() => {
    const main = document.querySelector('main.tensor');
    const heat = main?.querySelector('.heat');
    return Boolean(heat?.dataset.painter && !heat.classList.contains('loading') && heat.dataset.drawn
      && main.querySelector('.grid-box:not(.stale)') && main.querySelector('.place span') && !main.querySelector('[role=status]'));
  }));
}

// "[5, 2, 1] A -1.62 B 0.04 B − A 1.67" as it is shown. The page shows no value but that of the place beside it.
export async function place(page, index) {
  return eventually(async () => {
    const text = (await page.locator('.place').innerText()).replace(/\s+/g, ' ').trim();
    const found = /^\[([^\]]*)\] (?:A (\S+) B (\S+) B − A (\S+)|(\S+))/.exec(text);
    if (!found) throw new Error(`the place is not readable: ${text}`);
    const here = found[1].split(',').filter(Boolean).map(Number);
    if (index) assert.deepEqual(here, index);
    return { index: here, a: Number(found[2] ?? found[5]), b: Number(found[3]), text };
  });
}

// Shares of colours in what is seen of an element.
export async function colours(page, selector) {
  const picture = (await page.locator(selector).screenshot()).toString('base64');
  return page.evaluate(async (text) => {
    const bitmap = await createImageBitmap(new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))], { type: 'image/png' }));
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
    const context = canvas.getContext('2d');
    context.drawImage(bitmap, 0, 0);
    const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
    const seen = new Set();
    let magenta = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i] > 225 && data[i + 1] < 40 && data[i + 2] > 160 && data[i + 2] < 225) magenta++;
      seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    }
    return { magenta: magenta / (data.length / 4), distinct: seen.size };
  }, picture);
}

export async function download(page, press) {
  const [file] = await Promise.all([page.waitForEvent('download'), press()]);
  return { name: file.suggestedFilename(), text: readFileSync(await file.path()) };
}
