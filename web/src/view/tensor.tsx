// One tensor: what it is, where the eye is, and everything that shows it.
import { useEffect, useRef, useState } from 'preact/hooks';
import * as api from '../api';
import { exact, plural, shapeText, short, visible, elements } from '../format';
import { readIndex } from '../plane';
import { arranged, fail, firstId, list, overview, rowById, single, step, tensorHere } from '../state';
import { alone, at, comparable, detail, idOf, jump, jumpFirst, jumpWorst, metric, serial, shape, trouble, workspaceOf, worstRank } from '../subject';
import { Axes } from './axes';
import { Badge, Name, Panel, Trouble } from './bits';
import { Causes, Recipe, Statistics } from './facts';
import { Findings } from './findings';
import { differenceOf, Grid } from './grid';
import { Heat } from './heat';
import { Mapping } from './mapping';
import { Histograms, Profiles, Scatter } from './plots';

// The element at the place, with every digit.
function Place() {
  const [read, setRead] = useState<{ key: string; parts: string[] }>({ key: '', parts: [] });
  const key = `${idOf()}/${serial.value}/${at.value.join()}`;
  useEffect(() => {
    const controller = new AbortController();
    const index = at.value;
    const timer = setTimeout(() => {
      api.values(workspaceOf(), idOf(), index, index.map(() => 1), controller.signal).then((block) => {
        const a = block.a ? api.number(block.a[0]) : null;
        const b = block.b ? api.number(block.b[0]) : null;
        setRead({ key, parts: a !== null && b !== null ? [`A ${exact(block.a![0], a)}`, `B ${exact(block.b![0], b)}`, `B − A ${short(differenceOf(a, b), 4)}`] : [exact((block.a ?? block.b)![0], (a ?? b)!)] });
      }, fail);
    }, 60);
    return () => { clearTimeout(timer); controller.abort(); };
  }, [key]);
  return <output class="place num" aria-live="polite"><b>[{at.value.join(', ')}]</b> {/* never the value of another place */ read.key === key ? read.parts.map((part) => <><span>{part}</span> </>) : null}</output>;
}

function GoTo() {
  const [problem, setProblem] = useState('');
  const input = useRef<HTMLInputElement>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    const found = readIndex(input.current!.value, shape.value);
    if (typeof found === 'string') setProblem(found);
    else { setProblem(''); jump(found, 'now'); }
  };
  return (
    <form class="goto" onSubmit={submit}>
      <label class="field"><span class="sr">Go to coordinate</span><input id="goto" ref={input} class="medium" placeholder={`go to ${shape.value.map((size) => Math.max(0, size - 1)).join(', ')}`} aria-invalid={problem !== ''} aria-describedby="goto-problem" /></label>
      <button type="submit">Go</button>
      {problem ? <span id="goto-problem" class="problem" role="alert">{problem}</span> : null}
    </form>
  );
}

function Jumps() {
  return (
    <div class="jumps">
      <div class="buttons">
        <button type="button" onClick={() => void jumpWorst(false)} title="w">{alone.value ? 'Largest' : 'Worst'}</button>
        <button type="button" onClick={() => void jumpWorst(true)} title="w again">{alone.value ? 'Next largest' : 'Next worst'}{worstRank.value > 0 ? <span class="num"> {worstRank.value + 1}</span> : null}</button>
        <button type="button" onClick={() => void jumpFirst('nan')} title="m">First NaN</button>
        <button type="button" onClick={() => void jumpFirst('inf')}>First Inf</button>
      </div>
      <GoTo />
      <Place />
    </div>
  );
}

export function Tensor() {
  const d = detail.value;
  const id = tensorHere.value;
  const row = rowById.value.get(id);
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => { scrollTo(0, 0); heading.current?.focus({ preventScroll: true }); }, [id]);
  const shown = arranged.value.shown;
  const place = shown.findIndex((each) => each.id === id);
  const name = d?.name ?? row?.name ?? id;
  const empty = d && elements(shape.value) === 0;
  const findings = single.value ? (list.value?.findings ?? []).filter((finding) => finding.tensor === name) : [];
  const reason = d?.why ?? d?.problem ?? row?.reason;
  return (
    <main class="tensor" id="main">
      <div class="tensor-top">
        <nav class="buttons" aria-label="Tensors">
          <button type="button" class="small" onClick={overview}>← Overview</button>
          <button type="button" class="small" onClick={() => step(-1, false)} title="k" aria-label="Previous tensor">↑</button>
          <button type="button" class="small" onClick={() => step(1, false)} title="j" aria-label="Next tensor">↓</button>
          {single.value ? null : <button type="button" class="small" onClick={() => step(1, true)} title="n">Next that differs</button>}
        </nav>
        <span class="quiet num nowrap">{place >= 0 ? `${place + 1} of ${shown.length}` : ''}</span>
      </div>
      <header class="tensor-head">
        <h1 ref={heading} tabIndex={-1}><Name text={name} most={200} /></h1>
        <div class="tensor-facts">
          {d?.remapped ? <span class="tag warn">mapped by hand</span> : null}
          {d?.verdict && !alone.value ? <Badge verdict={d.verdict} /> : row?.verdict ? <Badge verdict={row.verdict} /> : null}
          {id === firstId.value && id !== '' ? <span class="tag">first divergence</span> : null}
          {d ? <span class="num">{shapeText(shape.value)}</span> : null}
          {d ? <span class="quiet">{[...new Set([d.dtype_a, d.dtype_b].filter(Boolean))].map((type) => visible(type!)).join(' / ')}</span> : null}
          {d && !alone.value && Number.isFinite(metric('rel_l2')) ? <span class="num">error <b>{short(metric('rel_l2'))}</b></span> : null}
          {d && !alone.value && Number.isFinite(metric('max_abs')) ? <span class="num">largest <b>{short(metric('max_abs'))}</b>{d.worst ? <> at {shapeText(d.worst)}</> : null}</span> : null}
          {d && alone.value ? <span class="quiet">{plural(elements(shape.value), 'element')}</span> : null}
        </div>
        {reason ? <p class="why">{visible(reason)}</p> : null}
      </header>
      {trouble.value ? <Trouble message={trouble.value.message} fix={trouble.value.fix}><button type="button" onClick={overview}>Overview</button></Trouble> : null}
      {!d && !trouble.value ? <p class="quiet" role="status">Reading…</p> : null}
      {d ? (
        <>
          {findings.length ? <Findings findings={findings} /> : null}
          <div class="side-by-side">
            <Causes key={`c${id}`} />
            {comparable.value && !empty ? <Panel id="place" title="Place"><Jumps /><Axes /></Panel> : null}
          </div>
          {empty ? <p>This tensor has no elements.</p> : comparable.value ? (
            <>
              <Heat key={`h${id}`} />
              <Grid key={`g${id}`} />
              <Profiles />
              <div class="side-by-side even"><Histograms /><Scatter key={`s${id}`} /></div>
            </>
          ) : null}
          <Statistics />
          {alone.value ? null : <Panel id="recipe" title="How they were aligned"><Recipe /></Panel>}
          <Mapping key={`m${id}`} />
        </>
      ) : null}
    </main>
  );
}
