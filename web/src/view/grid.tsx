// The grid of values around the place: real coordinates, blue and orange by sign and magnitude, borders by difference.
import { useEffect, useRef, useState } from 'preact/hooks';
import * as api from '../api';
import { severity, strength } from '../colour';
import { exact, full, short } from '../format';
import { blockOffset, windowAround } from '../plane';
import { adjust, route } from '../route';
import { fail, say } from '../state';
import { allowed, alone, at, cursor, detail, idOf, moveTo, plane, planeSize, serial, tolerance, workspaceOf } from '../subject';
import { Panel, Select, fileName, save } from './bits';
import { coordinates } from './heat';

type What = 'both' | 'a' | 'b' | 'difference';
// Everything is kept as it was asked for: a block must never be read in the axes of another plane.
interface Loaded { row: number; column: number; start: number[]; count: number[]; a: number[]; b: number[] | null; textA: (at: number) => string; textB: (at: number) => string; key: string }

const numbers = (values: api.Wire[] | null | undefined) => (values ? values.map(api.number) : null);

// Both NaN, or the same infinity: no difference.
export const differenceOf = (a: number, b: number) => (Object.is(a, b) || a === b || (Number.isNaN(a) && Number.isNaN(b)) ? 0 : b - a);

function Cell({ value, other, textA, textB, what, index, largest, here, onPick, onPoint }: { value: number; other: number | null; textA: string; textB: string; what: What; index: number[]; largest: number; here: boolean; onPick(): void; onPoint(text: string): void }) {
  const cell = useRef<HTMLTableCellElement>(null);
  const difference = other === null ? 0 : differenceOf(value, other);
  const bad = other === null ? 0 : severity(difference, allowed(value));
  const shown = what === 'b' ? other! : what === 'difference' ? difference : value;
  const odd = [value, other ?? value].some((each) => !Number.isFinite(each));
  useEffect(() => {
    const style = cell.current!.style;
    style.setProperty('--strength', strength(shown, largest).toFixed(3));
    style.setProperty('--bad', Math.min(1, Math.max(0, (bad - 1) / 2)).toFixed(3));
  }, [shown, largest, bad]);
  const place = `[${index.join(', ')}]`;
  const said = other === null ? `${place} ${textA}` : `${place} reference ${textA}, candidate ${textB}, difference ${full(difference)}`;
  const tone = !Number.isFinite(shown) ? (Number.isNaN(shown) ? 'is-nan' : 'is-inf') : shown === 0 ? 'is-zero' : shown < 0 ? 'is-negative' : 'is-positive';
  const edge = other === null ? '' : bad === 0 ? 'same' : bad <= 1 ? 'near' : 'off';
  return (
    <td ref={cell} class={`value ${tone} ${edge}${here ? ' here' : ''}${odd ? ' odd' : ''}`} title={said} onClick={onPick} onMouseEnter={() => onPoint(said)}>
      {what === 'both' && other !== null ? <><span>{short(value, 5)}</span><span class="second">{short(other, 5)}</span></> : short(shown, what === 'difference' ? 3 : 6)}
    </td>
  );
}

export function Grid() {
  const query = route.value.query;
  const narrow = innerWidth < 640;
  const clampCount = (text: string | undefined, usual: number) => { const value = Number(text); return Number.isInteger(value) && value >= 1 && value <= 64 ? value : usual; };
  const wantRows = clampCount(query.rows, 9);
  const wantColumns = clampCount(query.cols, narrow ? 4 : 10);
  const what: What = alone.value ? 'a' : (['both', 'a', 'b', 'difference'] as const).find((each) => each === query.cells) ?? 'both';
  const window = windowAround(plane.value, at.value, wantRows, wantColumns);
  const key = `${workspaceOf()}/${idOf()}/${serial.value}?${window.start.join()};${window.count.join()}`;
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [pointed, setPointed] = useState('');
  const side = alone.value;
  useEffect(() => {
    const controller = new AbortController();
    const timer = setTimeout(() => {
      api.values(workspaceOf(), idOf(), window.start, window.count, controller.signal).then((block) => {
        const a = numbers(block.a);
        const b = numbers(block.b);
        const first = a ?? b ?? [];
        setLoaded({
          row: plane.value.row, column: plane.value.column, start: window.start, count: window.count, a: first, b: a && b ? b : null, key,
          textA: (at) => exact((block.a ?? block.b)![at], first[at]!), textB: (at) => (b ? exact(block.b![at], b[at]!) : ''),
        });
      }, fail);
    }, 30);
    return () => { clearTimeout(timer); controller.abort(); };
  }, [key]);

  const { row, column } = loaded ?? plane.value;
  const shown = { shape: plane.value.shape, row, column };
  const indexOf = (down: number, across: number) => loaded!.start.map((first, axis) => first + (axis === row ? down : axis === column ? across : 0));
  const rowCount = loaded ? (row < 0 ? 1 : loaded.count[row]!) : 0;
  const columnCount = loaded ? (column < 0 ? 1 : loaded.count[column]!) : 0;
  const firstRow = loaded && row >= 0 ? loaded.start[row]! : 0;
  const firstColumn = loaded && column >= 0 ? loaded.start[column]! : 0;
  let largest = 0;
  if (loaded) {
    const see = (value: number) => { if (Number.isFinite(value)) largest = Math.max(largest, Math.abs(value)); };
    for (let i = 0; i < loaded.a.length; i++) {
      if (what === 'difference') see(differenceOf(loaded.a[i]!, loaded.b?.[i] ?? loaded.a[i]!));
      else { see(loaded.a[i]!); if (loaded.b) see(loaded.b[i]!); }
    }
  }
  const csv = () => {
    if (!loaded) return;
    const lines = [[...plane.value.shape.map((_, axis) => `axis${axis}`), ...(loaded.b ? ['reference', 'candidate', 'difference'] : ['value'])].join(',')];
    for (let i = 0; i < rowCount; i++) {
      for (let j = 0; j < columnCount; j++) {
        const offset = blockOffset(shown, loaded.count, i, j);
        const a = loaded.a[offset]!;
        const b = loaded.b?.[offset];
        lines.push([...indexOf(i, j), loaded.textA(offset), ...(b === undefined ? [] : [loaded.textB(offset), full(differenceOf(a, b))])].join(','));
      }
    }
    save(`${fileName(detail.value!.name)}.csv`, new Blob([`${lines.join('\n')}\n`], { type: 'text/csv' }));
    say('slice saved');
  };
  const { rows: totalRows, columns: totalColumns } = planeSize.value;
  const page = (down: number, across: number) => moveTo(coordinates(
    Math.min(totalRows - 1, Math.max(0, cursor.value.row + down * wantRows)), Math.min(totalColumns - 1, Math.max(0, cursor.value.column + across * wantColumns))));
  const tol = tolerance.value;
  return (
    <Panel id="grid" title="Values" actions={<button type="button" class="small" onClick={csv}>CSV of this slice</button>}>
      <div class="controls">
        {side ? null : <Select label="Cells" value={what} onChange={(next) => adjust({ cells: next === 'both' ? null : next })} options={[{ value: 'both', label: 'reference over candidate' }, { value: 'a', label: 'reference' }, { value: 'b', label: 'candidate' }, { value: 'difference', label: 'difference' }]} />}
        <label class="field"><span>Rows</span><input type="number" class="index" min={1} max={64} value={wantRows} onChange={(event) => adjust({ rows: (event.target as HTMLInputElement).value })} /></label>
        <label class="field"><span>Columns</span><input type="number" class="index" min={1} max={64} value={wantColumns} onChange={(event) => adjust({ cols: (event.target as HTMLInputElement).value })} /></label>
        <div class="buttons" role="group" aria-label="Move the window">
          <button type="button" class="small" aria-label="Window to the left" onClick={() => page(0, -1)}>←</button>
          <button type="button" class="small" aria-label="Window up" onClick={() => page(-1, 0)}>↑</button>
          <button type="button" class="small" aria-label="Window down" onClick={() => page(1, 0)}>↓</button>
          <button type="button" class="small" aria-label="Window to the right" onClick={() => page(0, 1)}>→</button>
        </div>
        {side ? null : (
          <span class="pair-of-inputs"><span class="quiet">tolerance</span>
            <input class="short" aria-label="relative tolerance" title="relative" value={short(tol.rtol, 2).replace('−', '-')} onChange={(event) => adjust({ tol: `${Number((event.target as HTMLInputElement).value) || 0},${tol.atol}` })} />
            <input class="short" aria-label="absolute tolerance" title="absolute" value={short(tol.atol, 2).replace('−', '-')} onChange={(event) => adjust({ tol: `${tol.rtol},${Number((event.target as HTMLInputElement).value) || 0}` })} />
          </span>
        )}
      </div>
      {loaded ? (
        <div class={`grid-box${loaded.key === key ? '' : ' stale'}`} tabIndex={0} role="region" aria-label="Values around the place">
          <table class="grid">
            <caption>
              {plane.value.shape.length > 2 ? <>[{plane.value.shape.map((_, axis) => (axis === row ? '↓' : axis === column ? '→' : String(loaded.start[axis]))).join(', ')}]</> : null}
              <span class="sr"> rows are indices of axis {row}, columns of axis {column}</span>
            </caption>
            <thead><tr><td />{Array.from({ length: columnCount }, (_, j) => <th scope="col" key={j} class={firstColumn + j === cursor.value.column ? 'here' : ''}>{firstColumn + j}</th>)}</tr></thead>
            <tbody>
              {Array.from({ length: rowCount }, (_, i) => (
                <tr key={i}>
                  <th scope="row" class={firstRow + i === cursor.value.row ? 'here' : ''}>{row < 0 ? '' : firstRow + i}</th>
                  {Array.from({ length: columnCount }, (__, j) => {
                    const offset = blockOffset(shown, loaded.count, i, j);
                    const index = indexOf(i, j);
                    return <Cell key={j} value={loaded.a[offset]!} other={loaded.b ? loaded.b[offset]! : null} textA={loaded.textA(offset)} textB={loaded.textB(offset)} what={what} index={index} largest={largest}
                      here={firstRow + i === cursor.value.row && firstColumn + j === cursor.value.column} onPick={() => moveTo(index)} onPoint={setPointed} />;
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : <p class="quiet">Reading values…</p>}
      <p class="readout num">{pointed || <span class="quiet">point at a cell for every digit</span>}</p>
    </Panel>
  );
}
