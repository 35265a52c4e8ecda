// The heat map with its controls: what is shown, in which colours and range, blink, swipe, zoom, the legend, the readout.
import { useEffect, useRef, useState } from 'preact/hooks';
import { blockStats, number, type Wire } from '../api';
import { colourMaps } from '../colour';
import { HeatMap, fit, rulerLeft, rulerTop, type Probe, type View } from '../draw/heatmap';
import { decades, type Look, type Show } from '../draw/paint';
import { fullSingle, short } from '../format';
import { adjust, route } from '../route';
import { dark, fail, say } from '../state';
import { alone, at, blinking, blinkPhase, cursor, detail, idOf, jumped, map, moveTo, plane, planeSize, range, serial, setShow, shape, signedMap, show, swipe, toggleBlink, workspaceOf } from '../subject';
import { Panel, Segments, Select, Sized, fileName, save, useSize } from './bits';

const showChoices: { value: Show; label: string; title: string }[] = [
  { value: 'a', label: 'Reference', title: 'Reference (1)' }, { value: 'b', label: 'Candidate', title: 'Candidate (2)' },
  { value: 'difference', label: 'Difference', title: 'Candidate − reference (3)' }, { value: 'magnitude', label: 'log |difference|', title: 'Its magnitude on a log scale (4)' },
];

export function planeQuery(): string {
  const { row, column } = plane.value;
  const still = at.value.map((index, axis) => (axis === row || axis === column ? 0 : index));
  const axes = row < 0 ? (column < 0 ? '' : `${column}`) : `${row},${column}`;
  return `axes=${axes}&at=${still.join(',')}`;
}

function parseView(text: string | undefined): View | null {
  const parts = (text ?? '').split(',').map(Number);
  if (parts.length !== 4 || !parts.every(Number.isFinite) || parts[2]! <= 0 || parts[3]! <= 0) return null;
  return { x: parts[0]!, y: parts[1]!, sx: parts[2]!, sy: parts[3]! };
}
const digits = (value: number) => String(Number(value.toPrecision(7)));

// Coordinates of the whole tensor for a place of the plane.
export function coordinates(row: number, column: number): number[] {
  const index = [...at.value];
  if (plane.value.row >= 0) index[plane.value.row] = row;
  if (plane.value.column >= 0) index[plane.value.column] = column;
  return index;
}

function readout(probe: Probe): string {
  const place = `[${coordinates(probe.row, probe.column).join(', ')}]`;
  const where = probe.rows * probe.columns > 1 ? `worst of ${probe.rows} × ${probe.columns} elements from ${place}` : place;
  if (probe.sides === 0) return where;
  if (probe.sides === 1) return `${where}  ${fullSingle(probe.a)}`;
  const difference = Object.is(probe.a, probe.b) ? 0 : probe.b - probe.a;
  return `${where}  A ${fullSingle(probe.a)}  B ${fullSingle(probe.b)}  B − A ${short(difference, 4)}`;
}

function Legend({ look }: { look: Look }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current!.getContext('2d')!;
    const image = context.createImageData(256, 1);
    for (let i = 0; i < 256; i++) {
      for (let k = 0; k < 3; k++) image.data[4 * i + k] = look.map.table[3 * i + k]!;
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }, [look.map]);
  const low = look.show === 'magnitude' ? look.high / 10 ** decades : look.low;
  const middleValue = look.show === 'magnitude' ? look.high / 10 ** (decades / 2) : (look.low + look.high) / 2;
  return (
    <div class="legend" aria-label={`Colours from ${short(low)} to ${short(look.high)}`} role="img">
      <div class="legend-bar"><canvas ref={canvas} width={256} height={1} /><div class="legend-labels num"><span>{short(low)}</span><span>{short(middleValue)}</span><span>{short(look.high)}</span></div></div>
      <ul class="swatches"><li><i class="swatch s-nan" />NaN</li><li><i class="swatch s-inf" />+Inf</li><li><i class="swatch s-ninf" />−Inf</li><li><i class="swatch s-zero" />exactly 0</li></ul>
    </div>
  );
}

function Range() {
  const text = route.value.query.range ?? '';
  const kind = text === '' ? 'most' : text === 'full' ? 'full' : 'typed';
  const now = range.value;
  return (
    <>
      <Select label="Range" value={kind} onChange={(next) => adjust({ range: next === 'most' ? null : next === 'full' ? 'full' : `${digits(now.low)}:${digits(now.high)}` })}
        options={[{ value: 'most', label: 'nearly all values' }, { value: 'full', label: 'all values' }, { value: 'typed', label: 'typed' }]} />
      {kind === 'typed' ? (
        <span class="pair-of-inputs">
          <input class="short" aria-label="lowest value" defaultValue={digits(now.low)} key={`l${text}`} onChange={(event) => { const value = Number((event.target as HTMLInputElement).value); if (value < now.high) adjust({ range: `${digits(value)}:${digits(now.high)}` }); }} />
          <input class="short" aria-label="highest value" defaultValue={digits(now.high)} key={`h${text}`} onChange={(event) => { const value = Number((event.target as HTMLInputElement).value); if (value > now.low) adjust({ range: `${digits(now.low)}:${digits(value)}` }); }} />
        </span>
      ) : null}
    </>
  );
}

export function Heat() {
  const [outer, width] = useSize<HTMLDivElement>();
  const box = useRef<HTMLDivElement>(null);
  const picture = useRef<HTMLCanvasElement>(null);
  const overlay = useRef<HTMLCanvasElement>(null);
  const heat = useRef<HeatMap | null>(null);
  const [probe, setProbe] = useState<Probe | null>(null);
  const [loading, setLoading] = useState('');
  const [sampled, setSampled] = useState(false);
  const { rows, columns } = planeSize.value;
  const shown: Show = blinking.value ? (blinkPhase.value ? 'b' : 'a') : show.value;
  const look: Look = { show: shown, map: map.value, ...range.value, swipe: -1, zeros: route.value.query.zeros !== 'off' };
  // Blinking and swiping show values, whatever was shown before.
  if ((blinking.value || swipe.value >= 0) && (show.value === 'difference' || show.value === 'magnitude')) Object.assign(look, valueRange());
  const room = Math.max(60, width - rulerLeft);
  const whole = fit(rows, columns, room, 440);
  const tall = Math.round(Math.min(460, Math.max(90, rows * whole.sy)) + rulerTop);

  useEffect(() => {
    const made = new HeatMap(box.current!, picture.current!, overlay.current!, {
      hover: setProbe,
      pick: (row, column) => moveTo(coordinates(row, column)),
      moved: (view) => adjust({ z: view && [view.x, view.y, view.sx, view.sy].map((value) => String(Number(value.toPrecision(6)))).join(',') }),
      swiped: (fraction) => adjust({ swipe: fraction.toFixed(3) }),
      trouble: fail,
      busy: (now, stale, some) => { setLoading(now ? (stale ? ' loading stale' : ' loading') : ''); setSampled(some); },
    });
    heat.current = made;
    box.current!.dataset.painter = made.painterName();
    return () => made.close();
  }, []);

  const query = planeQuery();
  const jumpedNow = jumped.value;
  const handled = useRef(jumpedNow);
  useEffect(() => {
    heat.current!.setPlane({ workspace: workspaceOf(), tensor: idOf(), version: serial.value, query, rows, columns }, parseView(route.value.query.z));
  }, [query, rows, columns, serial.value]);
  useEffect(() => { heat.current!.setLook(look, swipe.value); }, [shown, look.map, look.low, look.high, look.zeros, swipe.value, dark.value]);
  useEffect(() => { heat.current!.setCursor(cursor.value.row, cursor.value.column); }, [cursor.value.row, cursor.value.column]);
  useEffect(() => {
    if (handled.current === jumpedNow) return;
    handled.current = jumpedNow;
    heat.current!.show(cursor.value.row, cursor.value.column, true);
  }, [jumpedNow]);

  const key = (event: KeyboardEvent) => {
    const by = event.shiftKey ? 10 : 1;
    const steps: Record<string, [number, number]> = { ArrowUp: [-by, 0], ArrowDown: [by, 0], ArrowLeft: [0, -by], ArrowRight: [0, by] };
    const step = steps[event.key];
    if (step) {
      const row = Math.min(rows - 1, Math.max(0, cursor.value.row + step[0]));
      const column = Math.min(columns - 1, Math.max(0, cursor.value.column + step[1]));
      moveTo(coordinates(row, column));
      heat.current?.show(row, column, false);
    } else if (event.key === '+' || event.key === '=') heat.current?.zoom(1.5);
    else if (event.key === '-') heat.current?.zoom(1 / 1.5);
    else if (event.key === '0') heat.current?.fitAll();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const png = () => {
    const background = getComputedStyle(document.body).backgroundColor;
    void heat.current?.png(background).then((blob) => { save(`${fileName(detail.value!.name)}.png`, blob); say('picture saved'); }, fail);
  };
  const mode = blinking.value ? 'blink' : swipe.value >= 0 ? 'swipe' : '';
  return (
    <Panel id="heat" title={alone.value ? 'Heat map' : 'Heat maps'} actions={
      <>
        <button type="button" class="small" onClick={() => heat.current?.zoom(1.6)} aria-label="Closer">+</button>
        <button type="button" class="small" onClick={() => heat.current?.zoom(1 / 1.6)} aria-label="Further away">−</button>
        <button type="button" class="small" onClick={() => heat.current?.fitAll()}>All</button>
        <button type="button" class="small" onClick={png}>PNG</button>
      </>
    }>
      <div class="controls">
        {alone.value ? null : (
          <>
            <Segments label="What the map shows" value={mode ? ('' as Show) : show.value} options={showChoices} onChange={setShow} />
            <div class="segments" role="group" aria-label="Switch between both">
              <button type="button" aria-pressed={mode === 'blink'} title="Blink (b)" onClick={toggleBlink}>Blink</button>
              <button type="button" aria-pressed={mode === 'swipe'} title="Swipe (s)" onClick={() => { blinking.value = false; adjust({ swipe: mode === 'swipe' ? null : '0.5' }); }}>Swipe</button>
            </div>
            {mode === 'swipe' ? <label class="field"><span class="sr">Place of the swipe</span><input type="range" min={0} max={1} step={0.01} value={swipe.value} onInput={(event) => adjust({ swipe: (event.target as HTMLInputElement).value })} /></label> : null}
            {mode ? <span class="quiet now-shown">{mode === 'blink' ? (blinkPhase.value ? 'candidate' : 'reference') : 'reference | candidate'}</span> : null}
          </>
        )}
        <Select label="Colours" value={look.map.id} onChange={(id) => adjust({ colours: id })} options={colourMaps.map((each) => ({ value: each.id, label: each.label }))} />
        <Range />
        <label class="check"><input type="checkbox" checked={look.zeros} onChange={(event) => adjust({ zeros: (event.target as HTMLInputElement).checked ? null : 'off' })} /> hatch zeros</label>
      </div>
      <div ref={outer}>
        <Sized height={`${tall}px`} class="heat-frame">
          <div ref={box} class={`heat${loading}`} tabIndex={0} role="application" aria-roledescription="heat map" onKeyDown={key}
            aria-label={`Heat map of ${rows} by ${columns} elements, axes ${plane.value.row < 0 ? '' : `${plane.value.row} down and `}${plane.value.column} across of shape ${shape.value.join(' by ')}. Arrow keys move, plus and minus zoom. The grid below has the values.`}>
            <canvas ref={picture} class="heat-picture" />
            <canvas ref={overlay} class="heat-overlay" />
          </div>
        </Sized>
      </div>
      <p class="readout num">{probe ? readout(probe) : <span class="quiet">point at an element to read it, click to go there; drag moves, double click or wheel (after a click) zooms</span>}</p>
      {sampled ? <p class="quiet small-text">So far out not every element was looked at, but those known to be worst are here; closer up all are.</p> : null}
      <InView heat={heat} key={serial.value} />
      <Legend look={swipe.value >= 0 ? { ...look, show: 'a' } : look} />
    </Panel>
  );
}

// Statistics of the part in sight, when asked for.
function InView({ heat }: { heat: { current: HeatMap | null } }) {
  const [found, setFound] = useState<{ where: string; rows: [string, string, string, string][] } | null>(null);
  const ask = () => {
    const seen = heat.current?.visible();
    if (!seen) return;
    const start = [...at.value];
    const count = shape.value.map(() => 1);
    if (plane.value.row >= 0) { start[plane.value.row] = seen.row; count[plane.value.row] = seen.rows; }
    if (plane.value.column >= 0) { start[plane.value.column] = seen.column; count[plane.value.column] = seen.columns; }
    blockStats(workspaceOf(), idOf(), start, count).then((answer) => {
      const side = (key: string, name: string) => { const stats = answer[key] as Record<string, Wire> | null; return stats ? short(number(stats[name]), 5) : ''; };
      setFound({
        where: `[${start.map((first, axis) => (count[axis]! > 1 ? `${first}:${first + count[axis]!}` : String(first))).join(', ')}]`,
        rows: ['min', 'max', 'mean', 'std', 'norm', 'nan', 'inf'].map((name) => [name, side('a', name), side('b', name), side('difference', name)]),
      });
    }, fail);
  };
  const sides = alone.value ? ['value'] : ['reference', 'candidate', 'difference'];
  return (
    <div class="in-view">
      <button type="button" class="small" onClick={ask}>Statistics of what is in sight</button>
      {found ? (
        <table class="plain numbers">
          <caption class="num">{found.where}</caption>
          <thead><tr><td />{sides.map((side) => <th scope="col" key={side}>{side}</th>)}</tr></thead>
          <tbody>{found.rows.map(([name, ...cells]) => <tr key={name}><th scope="row">{name}</th>{(alone.value ? [cells[0] || cells[1]] : cells).map((cell, index) => <td class="num" key={index}>{cell}</td>)}</tr>)}</tbody>
        </table>
      ) : null}
    </div>
  );
}

function valueRange(): { low: number; high: number; map: (typeof colourMaps)[number] } {
  const stats = [detail.value?.stats_a, detail.value?.stats_b].flatMap((each) => [Number(each?.min), Number(each?.max)]).filter(Number.isFinite);
  const size = Math.max(...stats.map(Math.abs), 0) || 1;
  return { low: -size, high: size, map: map.value.diverging ? map.value : signedMap() };
}
