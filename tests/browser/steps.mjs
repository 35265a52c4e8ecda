// What a person does on the page, as the tests write it down.
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

export const fromDisk = (file) => ({ name: path.basename(file), bytes: readFileSync(file) });

// Choosing through the file dialog; gives the side's files to its hidden input.
export const choose = (page, side, files) => page.locator(`.zone[data-side="${side}"] input[type=file]`).first()
  .setInputFiles(files.map(({ name, bytes }) => ({ name, mimeType: 'application/octet-stream', buffer: bytes })));

export const done = (page) => page.locator('main.overview').waitFor({ timeout: 30_000 });

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

// "[5, 2, 1] A -1.62 B 0.04 B − A 1.67" as it is shown, when it is there.
export async function place(page) {
  const text = async () => (await page.locator('.place').innerText()).replace(/\s+/g, ' ').trim();
  let last = '';
  for (let i = 0; i < 40; i++) {
    await page.waitForTimeout(80);
    const now = await text();
    if (now === last && /\]\s*\S/.test(now) && !await page.locator('.grid-box.stale').count()) break;
    last = now;
  }
  const found = /^\[([^\]]*)\] (?:A (\S+) B (\S+) B − A (\S+)|(\S+))/.exec(last);
  if (!found) throw new Error(`the place is not readable: ${last}`);
  return { index: found[1].split(',').filter(Boolean).map(Number), a: Number(found[2] ?? found[5]), b: Number(found[3]), text: last };
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

// Waits until something holds; says what it was when it never does.
export async function until(what, holds) {
  for (let i = 0; i < 60; i++) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`in 12 s it did not come to this: ${what}`);
}

export async function download(page, press) {
  const [file] = await Promise.all([page.waitForEvent('download'), press()]);
  return { name: file.suggestedFilename(), text: readFileSync(await file.path()) };
}
