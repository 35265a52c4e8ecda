// What stands around every view: the header with both names, notices, help, progress.
import { useEffect, useRef } from 'preact/hooks';
import { signal } from '@preact/signals';
import * as api from '../api';
import { bytes, grouped, shortPaths, visible } from '../format';
import { go, route } from '../route';
import { dark, dismiss, fail, here, info, list, load, notices, overview, progress, said, theme, version } from '../state';
import { Name, Sized } from './bits';

export const helpOpen = signal(false);

export function Header() {
  const now = list.value;
  const names = now ? [now.a?.name, now.b?.name] : [info.value?.a?.name, info.value?.b?.name];
  const short = shortPaths(names);
  return (
    <header class="top">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); const main = document.getElementById('main'); if (main) { main.tabIndex = -1; main.focus(); } }}>Skip to the content</a>
      <a class="brand" href="#/" onClick={(event) => { event.preventDefault(); go({}); }} aria-label="Tensor Sleuth, start"><Logo /><span>Tensor Sleuth</span></a>
      {names[0] || names[1] ? (
        <nav class="crumbs" aria-label="Comparison">
          <a href={`#/w/${encodeURIComponent(here.value)}`} onClick={(event) => { event.preventDefault(); overview(); }} title="Overview">
            {names[0] ? <><span class="side-tag side-a" aria-label="reference">A</span><span title={visible(names[0])}><Name text={short[0]!} most={44} /></span></> : null}
            {names[1] ? <><span class="side-tag side-b" aria-label="candidate">B</span><span title={visible(names[1])}><Name text={short[1]!} most={44} /></span></> : null}
          </a>
        </nav>
      ) : <span class="crumbs" />}
      <div class="top-actions">
        <button type="button" class="icon" aria-label={dark.value ? 'Use light colours' : 'Use dark colours'} title={dark.value ? 'Light' : 'Dark'} onClick={() => { theme.value = dark.value ? 'light' : 'dark'; }}>{dark.value ? '☀' : '☾'}</button>
        <button type="button" class="icon" aria-label="Keyboard and help" title="Help (?)" onClick={() => { helpOpen.value = true; }}>?</button>
      </div>
    </header>
  );
}

function Logo() {
  return (
    <svg class="logo" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
      <rect x="2" y="2" width="6" height="6" rx="1.2" class="l1" /><rect x="9" y="2" width="6" height="6" rx="1.2" class="l2" />
      <rect x="2" y="9" width="6" height="6" rx="1.2" class="l2" /><rect x="9" y="9" width="6" height="6" rx="1.2" class="l3" />
      <circle cx="14" cy="14" r="6" class="l4" /><path d="M18.5 18.5 22 22" class="l4" />
    </svg>
  );
}

export function Notices() {
  return (
    <>
      <div class="notices">
        {notices.value.map((notice) => (
          <div key={notice.key} class={`notice ${notice.level}`} role={notice.level === 'error' ? 'alert' : 'status'}>
            <div><p>{visible(notice.message)}</p>{notice.fix ? <p class="fix">{visible(notice.fix)}</p> : null}</div>
            <button type="button" class="small ghost" aria-label="Dismiss" onClick={() => dismiss(notice.key)}>✕</button>
          </div>
        ))}
      </div>
      <p class="sr" role="status" aria-live="polite">{said.value}</p>
    </>
  );
}

const keys: [string, string][] = [
  ['j, k', 'next and previous tensor, in the order of the list'], ['n, N', 'next and previous tensor that differs'], ['o', 'overview'],
  ['/', 'search'], ['w', 'worst element of the tensor; again: the next worst'], ['m', 'first NaN'], ['b', 'blink between reference and candidate'],
  ['1, 2, 3, 4', 'show reference, candidate, difference, its magnitude'], ['s', 'swipe between both'], ['arrows', 'in the map: move the place; with Shift by ten'],
  ['+, −, 0', 'in the map: closer, further, everything'], ['g', 'go to a coordinate'], ['t', 'light or dark'], ['?', 'this help'],
];

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current!;
    if (helpOpen.value && !element.open) element.showModal();
    if (!helpOpen.value && element.open) element.close();
  }, [helpOpen.value]);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={() => { helpOpen.value = false; }} onClick={(event) => { if (event.target === dialog.current) helpOpen.value = false; }}>
      <h2 id="help-title">Keyboard</h2>
      <table class="plain"><tbody>{keys.map(([key, what]) => <tr key={key}><th scope="row">{key.split(', ').map((each, index) => <>{index ? ' ' : ''}<kbd>{each}</kbd></>)}</th><td>{what}</td></tr>)}</tbody></table>
      <h2>Reading the pictures</h2>
      <p>Blue is negative, orange positive. Cell borders are green inside the tolerance and orange beyond it. NaN is magenta, infinities are yellow (+) and cyan (−) checkers, exact zeros are hatched. Zoomed out, every pixel shows the element that differs most, so that no bad one disappears.</p>
      <p>The address of the page holds the whole view: copy it to come back, or to show it to somebody at this machine.</p>
      <p class="quiet">tsleuth {version.value}</p>
      <button type="button" class="primary" onClick={() => { helpOpen.value = false; }}>Close</button>
    </dialog>
  );
}

const stages: Record<string, string> = {
  waiting: 'Waiting for other runs',
  'opening a': 'Opening the reference', 'opening b': 'Opening the candidate', pairing: 'Pairing tensors', comparing: 'Comparing',
  judging: 'Telling rounding from bugs', diagnosing: 'Looking for the cause',
};

export function Busy() {
  const now = progress.value;
  const part = now && now.total > 0 ? Math.min(1, now.done / now.total) : 0;
  const amount = (count: number) => (now?.unit === 'bytes' ? bytes(count) : grouped(count));
  return (
    <main class="busy" id="main">
      <h1>{now ? stages[now.stage] ?? visible(now.stage) : 'Starting'}…</h1>
      <div class="bar large" role="progressbar" aria-label="progress" aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(100 * part)}><Sized class={`bar-fill${part === 0 ? ' unknown' : ''}`} width={`${(100 * part).toFixed(1)}%`} /></div>
      <p class="quiet num">{now && now.total > 0 ? `${amount(now.done)} of ${amount(now.total)}${now.unit === 'bytes' ? '' : ` ${visible(now.unit)}`}` : ' '}</p>
      <button type="button" onClick={() => void api.cancel(route.value.workspace).then(() => load(route.value.workspace), fail)}>Cancel</button>
    </main>
  );
}
