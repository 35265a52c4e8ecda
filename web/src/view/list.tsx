// The list of tensors: grouped, sorted, filtered, searched; only the rows in sight exist in the page.
import type { VNode } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { grouped, shapeText, short, visible } from '../format';
import { verdicts, type Group, type Item, type Row, type Sort } from '../rows';
import { adjust, formatHash, keepList, route } from '../route';
import { arranged, choice, firstId, healthOf, naturalDirection, open, rows, searchWanted, shutAll, single, toggleGroup } from '../state';
import { Mark, marks, Name, Select, Sized, verdictClass } from './bits';

const groupChoices: { value: Group; label: string }[] = [{ value: 'layer', label: 'layer' }, { value: 'stage', label: 'stage' }, { value: 'verdict', label: 'verdict' }, { value: 'none', label: 'nothing' }];
const sortChoices: { value: Sort; label: string }[] = [
  { value: 'order', label: 'execution order' }, { value: 'name', label: 'name' }, { value: 'error', label: 'relative error' },
  { value: 'max', label: 'largest difference' }, { value: 'cosine', label: 'cosine' }, { value: 'size', label: 'size' },
];

function sortBy(sort: Sort): void {
  const now = choice.value;
  const flips = now.sort === sort;
  const descending = flips ? !now.descending : naturalDirection(sort);
  adjust({ sort: sort === 'order' ? null : sort, dir: descending === naturalDirection(sort) ? null : descending ? 'down' : 'up' });
}

let focused = 0;

export function Tools() {
  const search = useRef<HTMLInputElement>(null);
  const now = choice.value;
  const [typed, setTyped] = useState(now.search);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setTyped(now.search), [now.search]);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (searchWanted.value === focused) return;
    focused = searchWanted.value;
    search.current?.focus();
    search.current?.select();
  }, [searchWanted.value]);
  const counts = new Map<string, number>();
  for (const row of rows.value) counts.set(row.verdict, (counts.get(row.verdict) ?? 0) + 1);
  const toggle = (verdict: string) => {
    const show = new Set(now.show);
    if (!show.delete(verdict)) show.add(verdict);
    adjust({ show: [...show].join(',') });
  };
  return (
    <div class="tools" role="search">
      <label class="field grow">
        <span class="sr">Search tensors by name, shape or type</span>
        <input
          ref={search} type="search" placeholder="Search name, shape, type  ( / )" value={typed}
          onInput={(event) => {
            const text = (event.target as HTMLInputElement).value;
            setTyped(text);
            clearTimeout(timer.current);
            timer.current = setTimeout(() => adjust({ q: text }), 120);
          }}
        />
      </label>
      <div class="chips" role="group" aria-label="Filter by verdict">
        {verdicts.filter((verdict) => counts.has(verdict)).map((verdict) => (
          <button type="button" key={verdict} class={`chip ${verdictClass(verdict)}`} aria-pressed={now.show.has(verdict)} onClick={() => toggle(verdict)}>
            <span aria-hidden="true">{marks[verdict]}</span> {verdict} <span class="num">{grouped(counts.get(verdict)!)}</span>
          </button>
        ))}
      </div>
      <Select label="Group by" value={now.group} options={groupChoices} onChange={(group) => adjust({ group: group === 'layer' ? null : group, shut: null })} />
      <Select label="Sort by" value={now.sort} options={sortChoices} onChange={(sort) => adjust({ sort: sort === 'order' ? null : sort, dir: null })} />
      {now.group !== 'none' ? (
        <div class="buttons">
          <button type="button" class="small" onClick={() => shutAll(true)}>Collapse all</button>
          <button type="button" class="small" onClick={() => shutAll(false)}>Expand all</button>
        </div>
      ) : null}
    </div>
  );
}

function Head({ sort, label, className }: { sort: Sort | ''; label: string; className: string }) {
  const now = choice.value;
  const active = sort !== '' && now.sort === sort;
  return (
    <div role="columnheader" class={`cell ${className}`} aria-sort={active ? (now.descending ? 'descending' : 'ascending') : sort ? 'none' : undefined}>
      {sort ? <button type="button" class="sort" onClick={() => sortBy(sort)}>{label}<span class="arrow" aria-hidden="true">{active ? (now.descending ? ' ↓' : ' ↑') : ''}</span></button> : label}
    </div>
  );
}

function numbers(row: Row): [string, string, string] {
  const error = row.kind !== 'pair' ? '' : row.relL2 === 0 ? 'equal' : Number.isNaN(row.relL2) ? '–' : short(row.relL2, 2);
  return [error, Number.isNaN(row.maxAbs) ? '' : short(row.maxAbs, 3), Number.isNaN(row.cosine) ? '' : row.cosine === 1 ? '1' : row.cosine > 0.9999 ? `1 − ${short(1 - row.cosine, 2)}` : short(row.cosine, 4)];
}

export const addressOf = (id: string) => formatHash({ workspace: route.value.workspace, tensor: id, query: keepList(route.value.query) });

// A plain click opens it here; one with a key held is the browser's: another tab or window.
export function followed(event: MouseEvent, id: string): void {
  event.stopPropagation();
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  open(id);
}

function Line({ row, index, top, height }: { row: Row; index: number; top: number; height: number }) {
  const [error, largest, cosine] = numbers(row);
  const alone = single.value !== '';
  const health = alone ? healthOf.value.get(row.name) ?? '' : '';
  const here = route.value.tensor === row.id && row.id !== '';
  const type = row.kind === 'skipped' ? '' : row.dtypeA && row.dtypeB && row.dtypeA !== row.dtypeB ? `${row.dtypeA} / ${row.dtypeB}` : row.dtypeA || row.dtypeB;
  const note = row.kind === 'pair' ? (row.nameB && row.nameB !== row.name ? `↔ ${row.nameB}` : '') : row.reason;
  return (
    <Sized top={`${top}px`} height={`${height}px`} role="row" aria-rowindex={index + 2} data-id={row.id}
      class={`line ${verdictClass(row.verdict)}${row.id === firstId.value && row.id !== '' ? ' first' : ''}${here ? ' here' : ''}${row.id ? '' : ' dead'}`}
      onClick={() => open(row.id)}>
      <div role="cell" class="cell c-mark">{alone && health ? <span class={`mark warns${health === 'fault' ? ' fault' : ''}`} title={`health: ${health}`}><span aria-hidden="true">!</span><span class="sr">{health}</span></span> : <Mark verdict={row.verdict} />}</div>
      <div role="cell" class="cell c-name">
        {row.id ? <a href={addressOf(row.id)} onClick={(event) => followed(event, row.id)}><Name text={row.name} /></a> : <Name text={row.name} />}
        {row.id === firstId.value && row.id !== '' ? <span class="tag">first divergence</span> : null}
        {row.byHand ? <span class="tag warn">mapped by hand</span> : null}
        {note ? <span class="note"><bdi>{visible(note).slice(0, 400)}</bdi></span> : null}
      </div>
      <div role="cell" class="cell c-shape num">{row.kind === 'skipped' ? '' : shapeText(row.shape)}</div>
      <div role="cell" class="cell c-type">{visible(type)}</div>
      {alone ? <>
        <div role="cell" class="cell c-size num">{row.kind === 'skipped' ? '' : grouped(row.count)}</div>
        <div role="cell" class="cell c-range num">{Number.isFinite(row.min) ? `${short(row.min)} … ${short(row.max)}` : ''}</div>
        <div role="cell" class="cell c-odd num">{row.nan > 0 || row.inf > 0 ? [row.nan > 0 ? `${grouped(row.nan)} NaN` : '', row.inf > 0 ? `${grouped(row.inf)} Inf` : ''].filter(Boolean).join(', ') : ''}</div>
      </> : <>
        <div role="cell" class="cell c-error num">{error}</div>
        <div role="cell" class="cell c-max num">{largest}</div>
        <div role="cell" class="cell c-cosine num">{cosine}</div>
      </>}
    </Sized>
  );
}

function GroupLine({ item, index, top, height }: { item: Extract<Item, { type: 'group' }>; index: number; top: number; height: number }) {
  return (
    <Sized top={`${top}px`} height={`${height}px`} role="row" aria-rowindex={index + 2} class="line group">
      <div role="cell" class="cell c-group">
        <button type="button" class="fold" aria-expanded={item.open} onClick={() => toggleGroup(item.key)}>
          <span class="chevron" aria-hidden="true">▸</span><Mark verdict={item.worst} /><bdi>{visible(item.label)}</bdi> <span class="quiet num">{grouped(item.count)}</span>
        </button>
      </div>
    </Sized>
  );
}

// Positions are sums of heights; groups and rows have one height each.
export function List() {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ from: 0, to: 1200, narrow: false });
  const { items, shown } = arranged.value;
  const tall = seen.narrow ? 62 : 36;
  const total = items.length * tall;
  useLayoutEffect(() => {
    const measure = () => {
      const frame = box.current?.getBoundingClientRect();
      if (!frame) return;
      // In steps, so that most scrolling changes nothing here.
      const from = Math.max(0, Math.floor((-frame.top - 400) / 400) * 400);
      const to = Math.ceil((-frame.top + innerHeight + 400) / 400) * 400;
      const narrow = frame.width < 620;
      setSeen((before) => (before.from === from && before.to === to && before.narrow === narrow ? before : { from, to, narrow }));
    };
    measure();
    addEventListener('scroll', measure, { passive: true });
    addEventListener('resize', measure);
    // Panels above that open and shut move the list without a scroll.
    const observer = new ResizeObserver(measure);
    observer.observe(document.body);
    return () => { removeEventListener('scroll', measure); removeEventListener('resize', measure); observer.disconnect(); };
  }, [items.length]);
  const first = Math.max(0, Math.floor(seen.from / tall));
  const last = Math.min(items.length, Math.ceil(seen.to / tall));
  const alone = single.value !== '';
  // Lines that were there before are handed over as they are, which spares comparing them.
  const made = useMemo(() => new Map<number, VNode>(), [items, tall, alone]);
  const lineOf = (item: Item, index: number): VNode => {
    let line = made.get(index);
    if (!line) {
      const place = { index, top: index * tall, height: tall };
      line = item.type === 'group' ? <GroupLine key={`g${item.key}`} item={item} {...place} /> : <Line key={item.row.order} row={item.row} {...place} />;
      made.set(index, line);
    }
    return line;
  };
  return (
    <div class={`list${alone ? ' alone' : ''}`} role="table" aria-label="Tensors" aria-rowcount={items.length + 1}>
      <div class="line head" role="row" aria-rowindex={1}>
        <Head sort="" label="" className="c-mark" />
        <Head sort="name" label="tensor" className="c-name" />
        <Head sort="" label="shape" className="c-shape" />
        <Head sort="" label="type" className="c-type" />
        {alone ? <>
          <Head sort="size" label="elements" className="c-size" />
          <Head sort="" label="range" className="c-range" />
          <Head sort="" label="NaN, Inf" className="c-odd" />
        </> : <>
          <Head sort="error" label="error" className="c-error" />
          <Head sort="max" label="max diff" className="c-max" />
          <Head sort="cosine" label="cosine" className="c-cosine" />
        </>}
      </div>
      <div ref={box} class="lines-box" role="rowgroup">
        <Sized height={`${total}px`} class="lines" role="presentation">
          {items.slice(first, last).map((item, offset) => lineOf(item, first + offset))}
        </Sized>
      </div>
      {shown.length === 0 ? <p class="empty">No tensor fits. <button type="button" class="small" onClick={() => adjust({ q: null, show: null })}>Show all</button></p> : null}
    </div>
  );
}
