// The HTTP API of docs/api.md: its types, and one function per request. All that knows about fetch and status codes.

// Numbers come as numbers, or as "nan", "inf" and "-inf"; complex ones as two of them. Integers beyond what a double
// holds are kept as text (see values).
export type Wire = number | string | null | undefined | [Wire, Wire];

// What is compared and drawn: the magnitude where it is complex.
export function number(value: Wire): number {
  if (typeof value === 'number') return value;
  if (Array.isArray(value)) return Math.hypot(number(value[0]), number(value[1]));
  if (typeof value === 'string' && /^-?\d+$/.test(value)) return Number(value);
  if (value === 'inf') return Infinity;
  if (value === '-inf') return -Infinity;
  return NaN;
}

export interface FileState { name: string; bytes: number; total?: number | null; complete?: boolean }
export interface SideState { name?: string; bytes?: number; state?: string; files?: FileState[]; local?: boolean; count?: number }
export interface Workspace {
  id: string; created?: number | string; used?: number | string; state: string;
  a?: SideState | null; b?: SideState | null;
  stage?: string; error?: { message: string; fix?: string } | null;
}
export interface Progress { stage: string; done: number; total: number; unit: string }
export interface Evidence { name: string; value: Wire; text: string }
export interface Cause { id: string; confidence: number; summary: string; check?: string | null; tied?: boolean; evidence?: Evidence[] }
export interface SideSummary { name: string; tensors: number; bytes: number }
export interface OneSided { id: string; name: string; shape: number[]; dtype: string; layer?: number | null; [key: string]: unknown }
export interface Skipped { path: string; reason: string; side: string; harmless?: boolean }
export interface Finding { id: string; severity: string; tensor?: string | null; text: string }
export interface First { id?: string | number; index?: number; name?: string; name_b?: string; why?: string | null }
export interface TensorList {
  verdict?: string; summary?: string; first?: First | string | number | null; causes?: Cause[]; doubts?: unknown[];
  a?: SideSummary | null; b?: SideSummary | null; columns: string[]; rows: unknown[][];
  only_a?: OneSided[]; only_b?: OneSided[]; skipped?: Skipped[]; findings?: Finding[];
  notes?: string[]; weights?: boolean;
}
export type Statistics = Record<string, Wire | Wire[]>;
export interface Profile { axis: number; name?: string | null; size?: number; rms: Wire[]; max: Wire[] }
export interface Detail {
  id: string | number; name: string; name_b?: string | null; shape: number[]; shape_a?: number[]; shape_b?: number[];
  verdict?: string | null; why?: string | null; recipe?: string; how?: string | null; dtype_a?: string; dtype_b?: string;
  file_a?: string | null; file_b?: string | null; problem?: string | null; operation?: string | null;
  worst?: number[] | null; identical?: boolean; stats?: Statistics; stats_a?: Statistics; stats_b?: Statistics;
  profiles?: Profile[]; histograms?: Histogram; quantiles?: Record<string, Wire> | null; attributes?: Record<string, string>;
  remapped?: boolean; mapping?: Remap; ambiguous?: boolean; guess?: boolean; sampled?: boolean; looked_at?: number; looked_at_all?: boolean;
  [metric: string]: unknown; // those of a tensor in the report
}
export interface Histogram { edges: Wire[]; difference_edges?: Wire[]; a?: number[] | null; b?: number[] | null; difference?: number[] | null }
export interface Block { shape: number[]; start: number[]; count: number[]; a?: Wire[] | null; b?: Wire[] | null }
export interface Element { index: number[] | null; a?: Wire; b?: Wire; difference?: Wire }
export interface Remap { name_b?: string; permute?: number[]; slice?: { axis: number; start: number; count: number }[]; swap?: boolean }
export interface RunOptions { map?: Record<string, string>; layer_offset?: number; rtol?: number; atol?: number; dims?: string }

// An error of the server or of the way to it, with what to do about it.
export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly fix: string = '') { super(message); }
}

export function explain(status: number, body: string, path: string): ApiError {
  try {
    const parsed = JSON.parse(body) as { error?: { message?: unknown; fix?: unknown } };
    if (parsed.error && typeof parsed.error.message === 'string')
      return new ApiError(status, parsed.error.message, typeof parsed.error.fix === 'string' ? parsed.error.fix : '');
  } catch { /* not ours: said below */ }
  if (status === 0)
    return new ApiError(0, 'the server does not answer', 'see whether tsleuth serve still runs in its terminal, then reload the page');
  return new ApiError(status, `the server answered ${status} to ${path}`, status === 401 || status === 403
    ? 'open the address that tsleuth serve printed, with its token' : 'reload the page');
}

const base = '/api/v1';
const change = { 'X-Tsleuth': '1' };

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(base + path, { credentials: 'same-origin', ...init });
  } catch (error) {
    if ((error as Error).name === 'AbortError') throw error;
    throw explain(0, '', path);
  }
  if (!response.ok) throw explain(response.status, await response.text().catch(() => ''), path);
  return response;
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await request(path, { signal });
  try {
    return await response.json() as T;
  } catch (error) {
    if ((error as Error).name === 'AbortError') throw error;
    throw new ApiError(response.status, `the answer to ${path} is cut off or not JSON`, 'reload the page');
  }
}

async function post<T>(path: string, body?: unknown): Promise<T | null> {
  const response = await request(path, {
    method: 'POST', headers: { ...change, 'Content-Type': 'application/json' }, body: JSON.stringify(body ?? {}),
  });
  const text = await response.text();
  return text ? JSON.parse(text) as T : null;
}

const at = (workspace: string) => `/workspaces/${encodeURIComponent(workspace)}`;
const one = (workspace: string, id: string) => `${at(workspace)}/tensors/${encodeURIComponent(id)}`;
// A name is a relative path: its slashes stay, everything else is percent-encoded.
export const filePath = (workspace: string, side: string, name: string) =>
  `${at(workspace)}/${side}/files/${name.split('/').map(encodeURIComponent).join('/')}`;
export const link = (workspace: string, what: string) => `${base}${at(workspace)}/${what}`;

export const health = () => get<{ name: string; version: string }>('/health');
export const workspaces = () => get<Workspace[]>('/workspaces');
export const workspace = (id: string, signal?: AbortSignal) => get<Workspace>(at(id), signal);
export const createWorkspace = async () => (await post<Workspace>('/workspaces'))!;
export const deleteWorkspace = (id: string) => request(at(id), { method: 'DELETE', headers: change });
export const deleteFile = (id: string, side: string, name: string) => request(filePath(id, side, name), { method: 'DELETE', headers: change });
export const swapSides = (id: string) => post(`${at(id)}/swap`);
export const run = (id: string, options: RunOptions = {}) => post(`${at(id)}/run`, options);
export const cancel = (id: string) => post(`${at(id)}/cancel`);
export const tensors = (id: string) => get<TensorList>(`${at(id)}/tensors`);
export const tensor = (id: string, pair: string, signal?: AbortSignal) => get<Detail>(one(id, pair), signal);
export const causes = (id: string, pair: string, signal?: AbortSignal) => get<Cause[]>(`${one(id, pair)}/causes`, signal);
export const remap = async (id: string, pair: string, how: Remap) => (await post<Detail>(`${one(id, pair)}/remap`, how))!;
export const worst = (id: string, pair: string, after: number) => get<Element>(`${one(id, pair)}/worst?after=${after}`);
export const firstOf = (id: string, pair: string, what: 'nan' | 'inf') => get<Element>(`${one(id, pair)}/worst?first=${what}`);
export const scatter = (id: string, pair: string, signal?: AbortSignal) => get<unknown>(`${one(id, pair)}/scatter?points=4096`, signal);
// JSON.parse would round integers of 16 digits and more: they become strings first.
export const exactIntegers = (json: string) => json.replace(/([[,]\s*)(-?\d{16,})(?=\s*[,\]])/g, '$1"$2"');
export async function values(id: string, pair: string, start: number[], count: number[], signal?: AbortSignal): Promise<Block> {
  const response = await request(`${one(id, pair)}/values?start=${start.join(',')}&count=${count.join(',')}`, { signal });
  return JSON.parse(exactIntegers(await response.text())) as Block;
}
export const blockStats = (id: string, pair: string, start: number[], count: number[], signal?: AbortSignal) =>
  get<Record<string, unknown>>(`${one(id, pair)}/stats?start=${start.join(',')}&count=${count.join(',')}`, signal);

// sampled: it stands for so many elements that not all of them were looked at.
export interface TileData { sides: number; rows: number; columns: number; values: Float32Array; sampled: boolean }

export async function tile(id: string, pair: string, query: string, signal?: AbortSignal): Promise<TileData> {
  const path = `${one(id, pair)}/tile?${query}`;
  const response = await request(path, { signal });
  const shape = (response.headers.get('X-Tsleuth-Shape') ?? '').split(',').map(Number);
  const bytes = await response.arrayBuffer();
  const [sides, rows, columns] = shape as [number, number, number];
  if (shape.length !== 3 || !(sides >= 1 && sides <= 2) || bytes.byteLength !== sides * rows * columns * 4)
    throw new ApiError(200, `the answer to ${path} has ${bytes.byteLength} bytes for a tile of ${shape.join(' × ')}`, 'reload the page');
  return { sides, rows, columns, values: littleEndian(bytes), sampled: response.headers.get('X-Tsleuth-Sampled') === '1' };
}

function littleEndian(bytes: ArrayBuffer): Float32Array {
  if (new Uint8Array(new Uint32Array([1]).buffer)[0] === 1) return new Float32Array(bytes);
  const view = new DataView(bytes);
  const values = new Float32Array(bytes.byteLength / 4);
  for (let i = 0; i < values.length; i++) values[i] = view.getFloat32(4 * i, true);
  return values;
}

// Progress of the comparison. Falls silent, not wrong, where the stream breaks: the caller also asks for the state.
export function watch(id: string, on: { progress(p: Progress): void; done(): void; failed(message: string, fix: string): void }): () => void {
  const source = new EventSource(link(id, 'events'));
  const parse = (event: Event) => { try { return JSON.parse((event as MessageEvent<string>).data) as Record<string, unknown>; } catch { return {}; } };
  source.addEventListener('progress', (event) => on.progress(parse(event) as unknown as Progress));
  source.addEventListener('done', () => { source.close(); on.done(); });
  source.addEventListener('failed', (event) => {
    const said = parse(event);
    source.close();
    on.failed(String(said.message ?? 'the comparison failed'), String(said.fix ?? ''));
  });
  return () => source.close();
}
