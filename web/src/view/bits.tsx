// Small parts that every view uses.
import type { ComponentChildren, HTMLAttributes } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { middle, visible } from '../format';

export const marks: Record<string, string> = { ok: '✓', noise: '≈', differs: '✗', 'cannot tell': '?', 'only one side': '◐', unreadable: '!', skipped: '–' };
const classes: Record<string, string> = { ok: 'ok', noise: 'noise', differs: 'differs', 'cannot tell': 'unsure', 'only one side': 'oneside', unreadable: 'unreadable' };
export const verdictClass = (verdict: string) => `v-${classes[verdict] ?? 'none'}`;

export function Mark({ verdict }: { verdict: string }) {
  if (!verdict) return <span class="mark v-none" aria-hidden="true">·</span>;
  return <span class={`mark ${verdictClass(verdict)}`} title={verdict}><span aria-hidden="true">{marks[verdict] ?? '·'}</span><span class="sr">{verdict}</span></span>;
}

export function Badge({ verdict }: { verdict: string }) {
  return <span class={`badge ${verdictClass(verdict)}`}><span aria-hidden="true">{marks[verdict] ?? '·'}</span> {verdict}</span>;
}

// A name out of a file: its own direction, no control characters, both ends kept.
export function Name({ text, most = 96 }: { text: string; most?: number }) {
  const shown = visible(text);
  return <bdi class="name" title={shown.length > most ? middle(shown, 1000) : undefined}>{middle(shown, most)}</bdi>;
}

export function Panel({ title, id, children, actions, closed }: { title: string; id: string; children: ComponentChildren; actions?: ComponentChildren; closed?: boolean }) {
  const [open, setOpen] = useState(!closed);
  return (
    <section class="panel" aria-labelledby={`${id}-title`}>
      <header class="panel-head">
        <h2 id={`${id}-title`}>
          <button type="button" class="fold" aria-expanded={open} onClick={() => setOpen(!open)}><span class="chevron" aria-hidden="true">▸</span>{title}</button>
        </h2>
        {open && actions ? <div class="actions">{actions}</div> : null}
      </header>
      {open ? <div class="panel-body">{children}</div> : null}
    </section>
  );
}

export function Segments<T extends string>({ label, value, options, onChange }: { label: string; value: T; options: readonly { value: T; label: string; title?: string }[]; onChange(value: T): void }) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map((option) => (
        <button type="button" key={option.value} aria-pressed={option.value === value} title={option.title} onClick={() => onChange(option.value)}>{option.label}</button>
      ))}
    </div>
  );
}

export function Select<T extends string>({ label, value, options, onChange, hideLabel }: { label: string; value: T; options: readonly { value: T; label: string }[]; onChange(value: T): void; hideLabel?: boolean }) {
  return (
    <label class="field">
      <span class={hideLabel ? 'sr' : ''}>{label}</span>
      <select value={value} onChange={(event) => onChange((event.target as HTMLSelectElement).value as T)}>
        {options.map((option) => <option key={option.value} value={option.value}>{option.label}</option>)}
      </select>
    </label>
  );
}

export function Trouble({ message, fix, children }: { message: string; fix?: string; children?: ComponentChildren }) {
  return (
    <div class="trouble" role="alert">
      <p><strong>{visible(message)}</strong></p>
      {fix ? <p class="fix">{visible(fix)}</p> : null}
      {children}
    </div>
  );
}

// Sets widths and heights through the object model: the page's policy forbids style attributes in markup.
export function Sized({ width, height, top, ...rest }: { width?: string; height?: string; top?: string } & HTMLAttributes<HTMLDivElement>) {
  const element = useRef<HTMLDivElement>(null);
  // Before the browser paints: a row must never be seen, or hit, at another row's place.
  useLayoutEffect(() => {
    const style = element.current!.style;
    style.width = width ?? '';
    style.height = height ?? '';
    style.top = top ?? '';
  }, [width, height, top]);
  return <div ref={element} {...rest} />;
}

export function useSize<T extends HTMLElement>(): [{ current: T | null }, number, number] {
  const element = useRef<T>(null);
  const [size, setSize] = useState<[number, number]>([0, 0]);
  useEffect(() => {
    const box = element.current!;
    const observer = new ResizeObserver(() => setSize([box.clientWidth, box.clientHeight]));
    observer.observe(box);
    setSize([box.clientWidth, box.clientHeight]);
    return () => observer.disconnect();
  }, []);
  return [element, ...size];
}

export function save(name: string, contents: Blob): void {
  const url = URL.createObjectURL(contents);
  const anchor = document.createElement('a');
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// A file name that every system takes, out of a tensor's name.
export const fileName = (text: string) => middle(text.replace(/[^\w.-]+/g, '_'), 80) || 'tensor';
