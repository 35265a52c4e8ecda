// Puts the page together: the view for the address, and the keyboard.
import { render } from 'preact';
import { useRef } from 'preact/hooks';
import './app.css';
import * as api from './api';
import { shortPaths, visible } from './format';
import { adjust, follow, go, route } from './route';
import { dark, failure, here, info, list, missing, overview, searchWanted, step, tensorHere, theme, version } from './state';
import { alone, blinking, jumpFirst, jumpWorst, setShow, swipe, toggleBlink } from './subject';
import { Trouble } from './view/bits';
import { Busy, Header, Help, helpOpen, Notices } from './view/frame';
import { Overview } from './view/overview';
import { Start } from './view/start';
import { Tensor } from './view/tensor';

function View() {
  if (!here.value) return <Start />;
  if (missing.value) {
    return (
      <main id="main" class="start">
        <Trouble message={missing.value.message} fix={missing.value.fix}><button type="button" class="primary" onClick={() => go({})}>Start anew</button></Trouble>
      </main>
    );
  }
  if (!info.value) return <main id="main" class="busy"><p class="quiet" role="status">Loading…</p></main>;
  if (info.value.state === 'busy') return <Busy />;
  if (!list.value) return info.value.state === 'done' && !failure.value ? <main id="main" class="busy"><p class="quiet" role="status">Loading…</p></main> : <Start />;
  return tensorHere.value ? <Tensor /> : <Overview />;
}

let worstAt = '';
function pressed(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.target as HTMLElement;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !['range', 'checkbox', 'radio'].includes((target as HTMLInputElement).type);
  if (typing) { if (event.key === 'Escape') target.blur(); return; }
  if (document.querySelector('dialog[open]')) return;
  const inTensor = route.value.tensor !== '' && list.value !== null;
  const there = `${route.value.workspace}/${route.value.tensor}`;
  switch (event.key) {
    case '?': helpOpen.value = true; break;
    case 't': theme.value = dark.value ? 'light' : 'dark'; break;
    case '/': if (!list.value) return; if (inTensor) overview(); searchWanted.value++; break;
    case 'j': if (list.value) step(1, false); break;
    case 'k': if (list.value) step(-1, false); break;
    case 'n': if (list.value) step(1, true); break;
    case 'N': if (list.value) step(-1, true); break;
    case 'o': if (inTensor) overview(); break;
    case 'w': if (!inTensor) return; void jumpWorst(worstAt === there); worstAt = there; break;
    case 'm': if (inTensor) void jumpFirst('nan'); break;
    case 'b': if (inTensor) toggleBlink(); break;
    case 's': if (inTensor && !alone.value) { blinking.value = false; adjust({ swipe: swipe.value >= 0 ? null : '0.5' }); } break;
    case 'g': if (inTensor) document.getElementById('goto')?.focus(); break;
    case '1': case '2': case '3': case '4': if (inTensor && !alone.value) setShow((['a', 'b', 'difference', 'magnitude'] as const)[Number(event.key) - 1]!); break;
    default: return;
  }
  event.preventDefault();
}

function App() {
  const ready = useRef(false);
  if (!ready.current) { ready.current = true; addEventListener('keydown', pressed); }
  const names = list.value ? shortPaths([list.value.a?.name, list.value.b?.name]).filter(Boolean).map(visible).join(' · ') : '';
  document.title = `${names ? `${names} · ` : ''}Tensor Sleuth`;
  return <><Header /><View /><Notices /><Help /></>;
}

// A file dropped beside the zones must not replace the page.
addEventListener('dragover', (event) => event.preventDefault());
addEventListener('drop', (event) => event.preventDefault());
// The token of the first load is a cookie by now; an address that is copied must not carry it.
if (location.search) history.replaceState(null, '', location.pathname + location.hash);
follow();
api.health().then((health) => { version.value = health.version; }, () => {});
render(<App />, document.getElementById('app')!);
