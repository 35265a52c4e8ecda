// The overview of a comparison, or of one input: the verdict in a line, the chart, the list.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect } from 'preact/hooks';
import { link } from '../api';
import { bytes, grouped, plural, visible } from '../format';
import { route } from '../route';
import { firstId, list, rowById, rows, single, start, step } from '../state';
import { marks, Name, Panel, save } from './bits';
import { CauseList } from './causes';
import { Chart } from './chart';
import { Findings } from './findings';
import { addressOf, followed, List, Tools } from './list';

const runVerdict: Record<string, string> = { match: 'ok', differ: 'differs', incomplete: 'cannot tell' };

const sentenceCase = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

function Verdict() {
  const now = list.value!;
  const first = rowById.value.get(firstId.value);
  const best = now.causes?.[0];
  const cause = best?.id === 'structure' ? undefined : best;
  const ties = cause?.tied ? now.causes!.slice(1).filter((each) => each.tied).map((each) => visible(each.id)).join(', ') : '';
  const pairs = rows.value.filter((row) => row.kind === 'pair');
  const count = (verdict: string) => pairs.filter((row) => row.verdict === verdict).length;
  const differing = count('differs');
  const byHand = pairs.filter((row) => row.byHand).length;
  const unread = (now.skipped ?? []).filter((skip) => !skip.harmless).length;
  const told = runVerdict[now.verdict ?? ''] ?? '';
  let sentence: ComponentChildren;
  if (single.value) sentence = <>{plural(rows.value.filter((row) => row.kind !== 'skipped').length, 'tensor')}, one input alone</>;
  else if (first) {
    sentence = <>
      <a href={addressOf(first.id)} onClick={(event) => followed(event, first.id)}><Name text={first.name} /></a> is the first to diverge
      {cause ? <>: <span class="cause-line">{visible(cause.summary)}</span>{ties ? <span class="quiet"> (a tie: {ties} explains it as well)</span> : null}</> : best ? '; no cause that was tested explains it' : null}
    </>;
  } else if (now.verdict === 'match') sentence = <>All {plural(pairs.length, 'tensor')} agree{count('noise') > 0 ? ', up to rounding' : ''}</>;
  else if (differing > 0) sentence = <>{grouped(differing)} of {plural(pairs.length, 'tensor')} differ</>;
  else sentence = <>Nothing that was compared differs, but not everything could be compared</>;
  const why = typeof now.first === 'object' && now.first ? now.first.why : first?.reason;
  return (
    <section class={`verdict ${told ? `v-${told === 'cannot tell' ? 'unsure' : told}` : 'v-none'}`} aria-label="Verdict">
      {told ? <span class="verdict-mark" aria-hidden="true">{marks[told]}</span> : null}
      <div>
        <h1><span class="sr">{now.verdict}: </span>{sentence}</h1>
        {why && first ? <p>{sentenceCase(visible(why))}.{cause?.check ? <> <b>Check</b> {visible(cause.check)}.</> : null}</p> : cause?.check ? <p><b>Check</b> {visible(cause.check)}.</p> : null}
        <p class="quiet">
          {single.value ? null : <>{now.verdict}: {differing > 0 ? `${grouped(differing)} of ${plural(pairs.length, 'tensor')} differ` : plural(pairs.length, 'pair')}
            {count('noise') ? `, ${grouped(count('noise'))} up to rounding` : ''}{count('ok') ? `, ${grouped(count('ok'))} equal` : ''}{count('cannot tell') ? `, ${grouped(count('cannot tell'))} cannot be told` : ''}. </>}
          {byHand ? `${plural(byHand, 'tensor')} mapped by hand since: the verdict is of the run. ` : ''}
          {now.only_a?.length && !single.value ? `${grouped(now.only_a.length)} only in the reference. ` : ''}
          {now.only_b?.length && !single.value ? `${grouped(now.only_b.length)} only in the candidate. ` : ''}
          {unread ? `${grouped(unread)} could not be read. ` : ''}
        </p>
      </div>
    </section>
  );
}

// One input has no report: its list can be taken away as it is, and as a table.
function csvOfList(): void {
  // Spreadsheets run text that begins like a formula, and names come from anywhere.
  const tame = (value: unknown) => (typeof value === 'string' && /^[=+\-@\t\r]/.test(value) && !/^-inf$/.test(value) ? `'${value}` : String(value ?? ''));
  const cell = (value: unknown) => { const text = Array.isArray(value) ? value.join(' ') : tame(value); return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text; };
  const { columns, rows: lines } = list.value!;
  save('tensors.csv', new Blob([`${[columns, ...lines].map((line) => line.map(cell).join(',')).join('\n')}\n`], { type: 'text/csv' }));
}

export function Exports() {
  const at = (what: string) => link(route.value.workspace, what);
  if (single.value) {
    return (
      <div class="buttons">
        <a class="button small" href={at('tensors')} download="tensors.json">JSON</a>
        <button type="button" class="small" onClick={csvOfList}>CSV</button>
      </div>
    );
  }
  return (
    <div class="buttons">
      <a class="button small" href={at('report.html')} download>HTML report</a>
      <a class="button small" href={at('report.json')} download>JSON</a>
      <a class="button small" href={at('report.csv')} download>CSV</a>
      <a class="button small" href={at('report.xml')} download>JUnit</a>
      <a class="button small" href={at('map')} download>Map file</a>
    </div>
  );
}

function Rerun() {
  const submit = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    const value = (name: string) => { const text = String(form.get(name) ?? '').trim(); return text === '' || !Number.isFinite(Number(text)) ? undefined : Number(text); };
    void start({ layer_offset: value('offset'), rtol: value('rtol'), atol: value('atol') });
  };
  return (
    <form class="form-line" onSubmit={submit}>
      <label class="field"><span>Layer offset</span><input name="offset" type="number" step="1" class="short" placeholder="found" /></label>
      <label class="field"><span>rtol</span><input name="rtol" inputMode="decimal" class="short" placeholder="judged" /></label>
      <label class="field"><span>atol</span><input name="atol" inputMode="decimal" class="short" placeholder="judged" /></label>
      <button type="submit">Compare again</button>
      <p class="quiet">Layer 3 of the reference against layer 0 of the candidate is an offset of 3. Without tolerances, rounding is told from bugs by itself.</p>
    </form>
  );
}

function Doubts() {
  const doubts = (list.value!.doubts ?? []).map((doubt) => (typeof doubt === 'string' ? doubt : ((doubt as { message?: string; summary?: string; text?: string }).message ?? (doubt as { summary?: string }).summary ?? JSON.stringify(doubt))));
  const notes = list.value!.notes ?? [];
  if (doubts.length + notes.length === 0) return null;
  return <ul class="doubts">{[...doubts, ...notes].slice(0, 20).map((text, index) => <li key={index}>{visible(text)}</li>)}</ul>;
}

// Where the list was left, to come back to it.
const left = { workspace: '', top: 0 };

export function Overview() {
  const now = list.value!;
  const causes = now.causes ?? [];
  useLayoutEffect(() => {
    const workspace = route.value.workspace;
    if (left.workspace === workspace) scrollTo(0, left.top);
    const note = () => { left.workspace = workspace; left.top = scrollY; };
    addEventListener('scroll', note, { passive: true });
    return () => removeEventListener('scroll', note);
  }, []);
  return (
    <main class="overview" id="main">
      <Verdict />
      <Doubts />
      {single.value ? <Findings findings={now.findings ?? []} /> : <Panel id="chart" title="Error along the run" actions={<button type="button" class="small" onClick={() => step(1, true)}>Next that differs</button>}><Chart /></Panel>}
      {causes.length > 0 ? <Panel id="causes" title={causes.length > 1 ? `What could explain it: ${causes.length} causes` : causes[0]!.id === 'structure' ? 'What is known of it' : 'The cause, and what was measured'} closed><CauseList causes={causes} /></Panel> : null}
      <section class="panel" aria-label="All tensors">
        <Tools />
        <List />
      </section>
      {single.value ? null : <Panel id="again" title="Compare again, otherwise" closed><Rerun /></Panel>}
      <footer class="foot">
        <Exports />
        <p class="quiet">{(['a', 'b'] as const).map((side) => now[side]).filter(Boolean).map((side) => `${visible(side!.name)}: ${plural(side!.tensors, 'tensor')}, ${bytes(side!.bytes)}`).join(' · ')}</p>
      </footer>
    </main>
  );
}

