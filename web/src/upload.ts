// Uploads: one raw PUT per file, two at a time, with progress; what was cut off goes on where the server stopped.
import { signal } from '@preact/signals';
import { ApiError, deleteFile, explain, filePath } from './api';

export type UploadState = 'waiting' | 'sending' | 'done' | 'failed' | 'cancelled';
export interface Upload {
  key: number; workspace: string; side: 'a' | 'b'; name: string; total: number; sent: number; state: UploadState;
  resumed: number; // bytes that were there already
  speed: number; // bytes a second
  message: string; fix: string;
}

interface Chosen { path: string; file: File }

export const uploads = signal<Upload[]>([]);
const files = new Map<number, File>();
const running = new Map<number, XMLHttpRequest>();
let nextKey = 0;
let finished: (workspace: string) => void = () => {};
export function whenIdle(callback: (workspace: string) => void): void { finished = callback; }

function update(key: number, changes: Partial<Upload>): void {
  uploads.value = uploads.value.map((each) => (each.key === key ? { ...each, ...changes } : each));
}

export function forget(workspace: string): void {
  uploads.value = uploads.value.filter((each) => each.workspace !== workspace || each.state === 'sending' || each.state === 'waiting');
}

export function enqueue(workspace: string, side: 'a' | 'b', chosen: Chosen[]): void {
  const added: Upload[] = [];
  for (const { path, file } of chosen) {
    const key = ++nextKey;
    files.set(key, file);
    added.push({ key, workspace, side, name: path, total: file.size, sent: 0, state: 'waiting', resumed: 0, speed: 0, message: '', fix: '' });
  }
  const names = new Set(added.map((each) => each.name));
  uploads.value = [...uploads.value.filter((each) => each.workspace !== workspace || each.side !== side || !names.has(each.name) || each.state === 'sending'), ...added];
  pump();
}

export function retry(key: number): void { update(key, { state: 'waiting', message: '', fix: '' }); pump(); }

export async function cancel(key: number): Promise<void> {
  const upload = uploads.value.find((each) => each.key === key);
  running.get(key)?.abort();
  running.delete(key);
  files.delete(key);
  uploads.value = uploads.value.filter((each) => each.key !== key);
  if (upload) remember(upload, null);
  if (upload) await deleteFile(upload.workspace, upload.side, upload.name).catch(() => {});
  pump();
}

function pump(): void {
  while (running.size < 2) {
    const next = uploads.value.find((each) => each.state === 'waiting' && !running.has(each.key));
    if (!next) break;
    send(next);
  }
}

function ended(upload: Upload): void {
  running.delete(upload.key);
  pump();
  const mine = uploads.value.filter((each) => each.workspace === upload.workspace);
  if (mine.length > 0 && mine.every((each) => each.state === 'done')) finished(upload.workspace);
}

// Which file was begun under a name: only the same one may be continued.
const memory = (upload: Upload) => `tsleuth.upload/${upload.workspace}/${upload.side}/${upload.name}`;
const mark = (file: File) => `${file.size} ${file.lastModified}`;
function begun(upload: Upload): string { try { return localStorage.getItem(memory(upload)) ?? ''; } catch { return ''; } }
function remember(upload: Upload, file: File | null): void {
  try { if (file) localStorage.setItem(memory(upload), mark(file)); else localStorage.removeItem(memory(upload)); } catch { /* then it starts anew after a reload */ }
}

// How much of an unfinished file the server holds. A whole one is replaced, not continued.
function received(upload: Upload, then: (count: number) => void): XMLHttpRequest {
  const request = new XMLHttpRequest();
  request.open('HEAD', `/api/v1${filePath(upload.workspace, upload.side, upload.name)}`);
  request.onloadend = () => {
    const count = request.status === 200 || request.status === 204 ? Number(request.getResponseHeader('X-Tsleuth-Received') ?? 0) : 0;
    then(Number.isSafeInteger(count) && count > 0 && request.getResponseHeader('X-Tsleuth-Complete') !== '1' ? count : 0);
  };
  request.send();
  return request;
}

function send(upload: Upload): void {
  const file = files.get(upload.key);
  if (!file) { update(upload.key, { state: 'failed', message: 'the file is no longer at hand', fix: 'choose it again' }); return; }
  update(upload.key, { state: 'sending' });
  running.set(upload.key, received(upload, (there) => {
    if (!running.has(upload.key)) return; // cancelled meanwhile
    const same = begun(upload) === mark(file);
    remember(upload, file);
    put(upload, file, same && there < file.size ? there : 0);
  }));
}

function put(upload: Upload, file: File, from: number): void {
  const request = new XMLHttpRequest();
  const began = performance.now();
  running.set(upload.key, request);
  request.open('PUT', `/api/v1${filePath(upload.workspace, upload.side, upload.name)}`);
  request.setRequestHeader('X-Tsleuth', '1');
  request.setRequestHeader('Content-Type', 'application/octet-stream');
  if (from > 0) request.setRequestHeader('Content-Range', `bytes ${from}-${file.size - 1}/${file.size}`);
  update(upload.key, { sent: from, resumed: from });
  request.upload.onprogress = (event) => {
    const seconds = Math.max(0.05, (performance.now() - began) / 1000);
    update(upload.key, { sent: from + event.loaded, speed: event.loaded / seconds });
  };
  request.onloadend = () => {
    if (!running.has(upload.key)) return;
    if (request.status >= 200 && request.status < 300) {
      remember(upload, null);
      update(upload.key, { state: 'done', sent: file.size });
    }
    else {
      const error: ApiError = request.status === 0
        ? new ApiError(0, 'the connection broke while the file was sent', 'try again: it goes on where it stopped. If the file was changed meanwhile, choose it again')
        : explain(request.status, request.responseText, 'the upload');
      update(upload.key, { state: 'failed', message: error.message, fix: error.fix });
    }
    ended(upload);
  };
  request.send(from > 0 ? file.slice(from) : file);
}

// Everything that was dropped, folders opened. Paths are relative to what was dropped.
export async function dropped(data: DataTransfer): Promise<Chosen[]> {
  const entries: FileSystemEntry[] = [];
  const loose: File[] = [];
  for (const item of Array.from(data.items)) {
    if (item.kind !== 'file') continue;
    const entry = item.webkitGetAsEntry?.();
    if (entry) entries.push(entry);
    else { const file = item.getAsFile(); if (file) loose.push(file); }
  }
  if (entries.length === 0 && loose.length === 0) loose.push(...Array.from(data.files));
  const chosen: Chosen[] = loose.map((file) => ({ path: file.name, file }));
  const queue = [...entries];
  while (queue.length > 0) {
    const entry = queue.shift()!;
    if (entry.isFile) {
      const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
      chosen.push({ path: entry.fullPath.replace(/^\/+/, ''), file });
    } else if (entry.isDirectory) {
      const reader = (entry as FileSystemDirectoryEntry).createReader();
      for (;;) { // readEntries gives a hundred at a time
        const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
        if (some.length === 0) break;
        queue.push(...some);
      }
    }
    if (chosen.length > 100_000) throw new ApiError(0, 'more than 100 000 files were dropped', 'start the server with the folder: tsleuth serve A B');
  }
  return chosen;
}

export const picked = (input: FileList): Chosen[] => Array.from(input).map((file) => ({ path: file.webkitRelativePath || file.name, file }));
