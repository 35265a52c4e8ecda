// The start: two drop zones, what is being sent, and the workspaces that are there.
import { useEffect, useRef, useState } from 'preact/hooks';
import * as api from '../api';
import { ago, bytes, duration, plural, shortPaths, visible } from '../format';
import { go, route } from '../route';
import { fail, failure, has, info, load, start, tell } from '../state';
import { cancel, dropped, enqueue, forget, picked, retry, uploads, whenIdle, type Upload } from '../upload';
import { Name, Sized, Trouble } from './bits';

const titles = { a: 'Reference', b: 'Candidate' } as const;

// Two sides that are dropped one right after the other belong to one workspace.
let making: Promise<string> | null = null;
function workspaceId(): Promise<string> {
  if (route.value.workspace && info.value) return Promise.resolve(route.value.workspace);
  making ??= api.createWorkspace().then((made) => { go({ workspace: made.id }); return made.id; }).finally(() => { making = null; });
  return making;
}

async function take(side: 'a' | 'b', chosen: { path: string; file: File }[]): Promise<void> {
  if (chosen.length === 0) { tell('info', 'there is no file in what was given'); return; }
  try { enqueue(await workspaceId(), side, chosen); } catch (error) { fail(error); }
}

// Both sides there and nothing on its way: compare. One side alone waits for the button.
whenIdle((workspace) => {
  if (workspace !== route.value.workspace) return;
  void load(workspace).then(() => {
    const now = info.value;
    if (now?.state === 'ready' && has(now.a) && has(now.b) && !incomplete(now).length) void start().then(() => forget(workspace));
  });
});

const filesOf = (side: api.SideState | null | undefined) => side?.files ?? [];
const isComplete = (file: api.FileState) => file.complete !== false && !(file.total && file.bytes < file.total);
const incomplete = (workspace: api.Workspace) => [...filesOf(workspace.a), ...filesOf(workspace.b)].filter((file) => !isComplete(file));

function UploadLine({ upload }: { upload: Upload }) {
  const part = upload.total > 0 ? upload.sent / upload.total : upload.state === 'done' ? 1 : 0;
  const left = upload.speed > 0 ? (upload.total - upload.sent) / upload.speed : NaN;
  return (
    <li class={`file file-${upload.state}`}>
      <div class="file-line">
        <Name text={upload.name} most={60} />
        <span class="quiet num">{upload.state === 'sending' && upload.sent < upload.total ? `${bytes(upload.sent)} of ${bytes(upload.total)}${left > 1 ? `, ${duration(left)} left` : ''}` : bytes(upload.total)}</span>
        {upload.state === 'failed' ? <button type="button" class="small" onClick={() => retry(upload.key)}>Try again</button> : null}
        <button type="button" class="small ghost" aria-label={`${upload.state === 'done' ? 'Remove' : 'Cancel'} ${visible(upload.name)}`} onClick={() => void cancel(upload.key).then(() => load(upload.workspace))}>✕</button>
      </div>
      {upload.state === 'failed' ? <Trouble message={upload.message} fix={upload.fix} /> : (
        <div class="bar" role="progressbar" aria-label={`upload of ${visible(upload.name)}`} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(100 * part)}>
          <Sized class="bar-fill" width={`${(100 * part).toFixed(1)}%`} />
        </div>
      )}
      {upload.resumed > 0 && upload.resumed < upload.total ? <p class="quiet">went on after {bytes(upload.resumed)} that had arrived before</p> : null}
    </li>
  );
}

function FileLine({ side, file }: { side: 'a' | 'b'; file: api.FileState }) {
  const workspace = route.value.workspace;
  return (
    <li class="file">
      <div class="file-line">
        <Name text={file.name} most={60} />
        <span class="quiet num">{isComplete(file) ? bytes(file.bytes) : `${bytes(file.bytes)}${file.total ? ` of ${bytes(file.total)}` : ''} arrived`}</span>
        <button type="button" class="small ghost" aria-label={`Remove ${visible(file.name)}`} onClick={() => void api.deleteFile(workspace, side, file.name).then(() => load(workspace), fail)}>✕</button>
      </div>
      {isComplete(file) ? null : <p class="fix">cut off: choose the same file again and it goes on from there</p>}
    </li>
  );
}

function Zone({ side }: { side: 'a' | 'b' }) {
  const [over, setOver] = useState(0);
  const filePicker = useRef<HTMLInputElement>(null);
  const folderPicker = useRef<HTMLInputElement>(null);
  const mine = uploads.value.filter((each) => each.side === side && each.workspace === route.value.workspace);
  const known = info.value ? filesOf(info.value[side]) : [];
  const busyNames = new Set(mine.map((each) => each.name));
  const rest = known.filter((file) => !busyNames.has(file.name));
  const path = info.value?.[side];
  const many = 50;
  useEffect(() => { folderPicker.current!.webkitdirectory = true; }, []);
  return (
    <section
      class={`zone${over > 0 ? ' over' : ''}`} aria-label={titles[side]} data-side={side}
      onDragEnter={(event) => { event.preventDefault(); setOver(over + 1); }}
      onDragLeave={() => setOver(Math.max(0, over - 1))}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        setOver(0);
        if (event.dataTransfer) void dropped(event.dataTransfer).then((chosen) => take(side, chosen), fail);
      }}
    >
      <h2>{titles[side]} <span class={`side-tag side-${side}`} aria-hidden="true">{side.toUpperCase()}</span></h2>
      <p class="quiet">{side === 'a' ? 'what is known to be right' : 'what is to be checked; leave empty to look at one input alone'}</p>
      <div class="zone-body">
        <div class="drop-hint" aria-hidden="true">Drop files, a folder or an archive here</div>
        <div class="buttons">
          <button type="button" onClick={() => filePicker.current!.click()}>Choose files…</button>
          <button type="button" onClick={() => folderPicker.current!.click()}>Choose a folder…</button>
        </div>
        <input ref={filePicker} type="file" multiple hidden aria-label={`${titles[side]} files`} onChange={(event) => { const input = event.target as HTMLInputElement; void take(side, picked(input.files!)); input.value = ''; }} />
        <input ref={folderPicker} type="file" multiple hidden aria-label={`${titles[side]} folder`} onChange={(event) => { const input = event.target as HTMLInputElement; void take(side, picked(input.files!)); input.value = ''; }} />
      </div>
      {mine.length + rest.length > 0 || path?.local ? (
        <ul class="files">
          {path?.local ? <li class="file"><div class="file-line"><Name text={path.name ?? ''} most={200} /><span class="quiet num">{bytes(path.bytes ?? 0)}, on this machine</span></div></li> : null}
          {mine.slice(0, many).map((upload) => <UploadLine key={upload.key} upload={upload} />)}
          {rest.slice(0, many).map((file) => <FileLine key={file.name} side={side} file={file} />)}
          {mine.length + rest.length > 2 * many ? <li class="quiet">and {mine.length + rest.length - 2 * many} more</li> : null}
        </ul>
      ) : null}
    </section>
  );
}

function Workspaces() {
  const [list, setList] = useState<api.Workspace[] | null>(null);
  const refresh = () => void api.workspaces().then(setList, fail);
  useEffect(refresh, []);
  if (!list || list.length === 0) return null;
  const label = (each: api.Workspace) => shortPaths([each.a?.name, each.b?.name]).filter(Boolean);
  return (
    <section class="workspaces" aria-labelledby="workspaces-title">
      <h2 id="workspaces-title">Workspaces on this server</h2>
      <ul>
        {list.slice(0, 100).map((each) => (
          <li key={each.id} class="workspace">
            <a href={`#/w/${encodeURIComponent(each.id)}`}>
              {label(each).length === 0 ? <span class="quiet">nothing uploaded yet</span> : label(each).map((name, index) => <span key={index}>{index > 0 ? <span class="quiet"> against </span> : null}<Name text={name} most={48} /></span>)}
            </a>
            <span class={`state state-${each.state}`}>{each.state}</span>
            <span class="quiet">{bytes((each.a?.bytes ?? 0) + (each.b?.bytes ?? 0))}</span>
            <span class="quiet">{ago(each.used ?? each.created)}</span>
            <button type="button" class="small ghost" aria-label={`Delete workspace ${label(each).map(visible).join(' against ') || each.id}`} onClick={() => { if (confirm('Remove this workspace and what was uploaded to it?')) void api.deleteWorkspace(each.id).then(refresh, fail); }}>Delete</button>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Start() {
  const now = route.value.workspace ? info.value : null;
  const mine = uploads.value.filter((each) => each.workspace === route.value.workspace);
  const sending = mine.filter((each) => each.state === 'sending' || each.state === 'waiting').length;
  const hasA = has(now?.a);
  const hasB = has(now?.b);
  const can = now && (hasA || hasB) && sending === 0 && incomplete(now).length === 0;
  const failed = failure.value;
  return (
    <main class="start" id="main">
      {failed ? <Trouble message={failed.message} fix={failed.fix || 'remove the input that cannot be read and choose another'} /> : null}
      {!now ? (
        <div class="intro">
          <h1>Where do two runs part ways?</h1>
          <p>Drop the tensors of a reference and of a candidate. You get the first tensor that is really wrong, why, and every value around it. Nothing leaves this machine.</p>
        </div>
      ) : <h1 class="sr">Inputs of this workspace</h1>}
      <div class="zones">
        <Zone side="a" />
        <Zone side="b" />
      </div>
      <div class="go">
        {sending > 0 ? <span class="quiet" role="status">{plural(sending, 'file')} on the way; the comparison starts by itself</span> : null}
        {now && hasA && hasB ? <button type="button" onClick={() => void api.swapSides(now.id).then(() => load(now.id), fail)}>Swap sides</button> : null}
        {can ? <button type="button" class="primary" onClick={() => void start().then(() => forget(now.id))}>{hasA && hasB ? 'Compare' : 'Look at it alone'}</button> : null}
      </div>
      {!now ? (
        <>
          <p class="formats quiet">safetensors, PyTorch, GGUF, npy and npz, ONNX, text and JSON dumps, raw files; folders, zip, tar, 7z of them. Already on this machine? <code>tsleuth serve A B</code> opens them without copying.</p>
          <Workspaces />
        </>
      ) : null}
    </main>
  );
}
