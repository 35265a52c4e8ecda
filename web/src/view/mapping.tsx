// Manual mapping: pair with another tensor, permute axes, take a slice, swap; compared again at once.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { link, type Remap } from '../api';
import { shapeText, visible } from '../format';
import { route } from '../route';
import { list, rowById, rows, start } from '../state';
import { alone, detail, remap } from '../subject';
import { Panel } from './bits';

const readOrder = (text: string) => { const order = text.split(/[\s,]+/).filter(Boolean).map(Number); return order.length ? order : null; };

// "1,0,2" for an axis order; '' leaves it.
export function readPermutation(text: string, rank: number): number[] | null | string {
  const trimmed = text.trim();
  if (trimmed === '') return null;
  const order = trimmed.split(/[\s,]+/).map(Number);
  if (order.length !== rank) return `${order.length} axes were named, the candidate has ${rank}`;
  if ([...order].sort((x, y) => x - y).some((axis, index) => axis !== index)) return `name each axis from 0 to ${rank - 1} once`;
  return order.every((axis, index) => axis === index) ? null : order;
}

export function Mapping() {
  const d = detail.value!;
  const names = useMemo(() => {
    const seen = new Set<string>();
    for (const row of rows.value) if (row.kind === 'pair') seen.add(row.nameB || row.name); else if (row.kind === 'only_b') seen.add(row.name);
    return [...seen];
  }, [list.value]);
  const found = rowById.value.get(route.value.tensor)?.nameB ?? d.name_b ?? ''; // before any mapping by hand
  // What is in force now, also after a reload or a restart of the server.
  const now = d.mapping ?? {};
  const [name, setName] = useState(now.name_b ?? found);
  const [order, setOrder] = useState(now.permute?.join(',') ?? '');
  const [slices, setSlices] = useState<{ axis: number; start: number; count: number }[]>(now.slice ?? []);
  const [swap, setSwap] = useState(now.swap ?? false);
  const [problem, setProblem] = useState('');
  // Under exchanged sides the candidate stands as A.
  const shapeB = (swap && d.remapped ? d.shape_a : d.shape_b) ?? d.shape;
  const [busy, setBusy] = useState(false);
  const [changed, setChanged] = useState(0);
  // A change that is finished, not every letter of it, compares at once.
  useEffect(() => { if (changed > 0) void apply(); }, [changed]);
  if (alone.value) return null;

  function wanted(): Remap | string {
    const how: Remap = {};
    if (name && name !== found) {
      if (!names.includes(name)) return `the candidate has no tensor ${JSON.stringify(name)}`;
      how.name_b = name;
    }
    // Of another tensor the rank is not known here; the server says when it does not fit.
    const permutation = how.name_b && how.name_b !== d.name_b ? readOrder(order) : readPermutation(order, shapeB.length);
    if (typeof permutation === 'string') return permutation;
    if (permutation) how.permute = permutation;
    if (slices.length) how.slice = slices;
    if (swap) how.swap = true;
    return how;
  }
  async function apply(event?: Event): Promise<void> {
    event?.preventDefault();
    const how = wanted();
    if (typeof how === 'string') { setProblem(how); return; }
    setBusy(true);
    setProblem(await remap(how));
    setBusy(false);
  }
  const back = async () => {
    setProblem('');
    setOrder('');
    setSlices([]);
    setSwap(false);
    setBusy(true);
    setProblem(await remap({}));
    setName(found);
    setBusy(false);
  };
  const everywhere = () => {
    if (!names.includes(name)) { setProblem(`the candidate has no tensor ${JSON.stringify(name)}`); return; }
    void start({ map: { [d.name]: name } });
  };
  const change = (at: number, key: 'axis' | 'start' | 'count', value: string) => setSlices(slices.map((slice, index) => (index === at ? { ...slice, [key]: Math.max(0, Math.trunc(Number(value)) || 0) } : slice)));
  return (
    <Panel id="mapping" title="Map by hand" closed={!(d.problem || d.ambiguous || d.guess || d.remapped)}>
      <form class="mapping" onSubmit={(event) => void apply(event)} onChange={() => setChanged(changed + 1)}>
        <label class="field wide-field"><span>Candidate</span>
          <input list="names-of-b" value={name} onInput={(event) => setName((event.target as HTMLInputElement).value)} spellcheck={false} />
          <datalist id="names-of-b">{names.slice(0, 5000).map((each) => <option key={each} value={each} />)}</datalist>
        </label>
        <label class="field"><span>Axis order</span><input class="medium" placeholder={shapeB.map((_, axis) => axis).join(',')} value={order} onInput={(event) => setOrder((event.target as HTMLInputElement).value)} aria-describedby="order-help" /></label>
        <span class="quiet num" id="order-help">axes of the candidate {shapeText(shapeB)} in the order they are wanted</span>
        {slices.map((slice, at) => (
          <fieldset class="slice" key={at}>
            <legend class="sr">Slice {at + 1}</legend>
            <label class="field"><span>axis</span><input type="number" class="index" min={0} max={Math.max(0, shapeB.length - 1)} value={slice.axis} onInput={(event) => change(at, 'axis', (event.target as HTMLInputElement).value)} /></label>
            <label class="field"><span>from</span><input type="number" class="index" min={0} value={slice.start} onInput={(event) => change(at, 'start', (event.target as HTMLInputElement).value)} /></label>
            <label class="field"><span>count</span><input type="number" class="index" min={1} value={slice.count} onInput={(event) => change(at, 'count', (event.target as HTMLInputElement).value)} /></label>
            <button type="button" class="small ghost" aria-label={`Remove slice ${at + 1}`} onClick={() => setSlices(slices.filter((_, index) => index !== at))}>✕</button>
          </fieldset>
        ))}
        <div class="buttons">
          <button type="button" class="small" onClick={() => setSlices([...slices, { axis: 0, start: 0, count: shapeB[0] ?? 1 }])}>Add a slice or an offset</button>
          <label class="check"><input type="checkbox" checked={swap} onChange={(event) => setSwap((event.target as HTMLInputElement).checked)} /> swap the sides</label>
        </div>
        {problem ? <p class="problem" role="alert">{visible(problem)}</p> : null}
        <div class="buttons">
          <button type="submit" class="primary" disabled={busy}>{busy ? 'Comparing…' : 'Compare so'}</button>
          <button type="button" disabled={busy} onClick={() => void back()}>Back to what was found</button>
          <button type="button" disabled={busy || name === found} onClick={everywhere} title="Runs the whole comparison again with this pair">Run everything with this pair</button>
          <a class="button" href={link(route.value.workspace, 'map')} download>Save as map file</a>
        </div>
      </form>
    </Panel>
  );
}
