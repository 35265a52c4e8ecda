// Error along execution order: one dot per tensor on a log scale, the noise floor below, the first divergence marked.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { short, visible, middle } from '../format';
import type { Row } from '../rows';
import { dark, firstId, open, rows } from '../state';
import { useSize } from './bits';

const pad = { left: 52, right: 14, top: 22, bottom: 24 };
const height = 220;
const most = 1e3;
const least = 1e-12;

interface Dot { row: Row; x: number; y: number; colour: string }

export function Chart() {
  const [box, width] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<Dot | null>(null);
  const pairs = useMemo(() => rows.value.filter((row) => row.kind === 'pair'), [rows.value]);
  const first = firstId.value;
  const night = dark.value;

  const scale = useMemo(() => {
    let low = Infinity;
    let high = 0;
    for (const row of pairs) {
      for (const value of [row.relL2, row.floor]) if (value > 0 && Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
    }
    if (!(high > 0)) return { low: -8, high: 0 };
    const bottom = Math.floor(Math.log10(Math.max(least, low)) - 0.2);
    return { low: bottom, high: Math.max(bottom + 2, Math.ceil(Math.log10(Math.min(most, high)) + 0.2)) };
  }, [pairs]);

  const dots = useMemo(() => {
    if (!width || !canvas.current) return [];
    const style = getComputedStyle(canvas.current);
    const colours: Record<string, string> = {};
    for (const [verdict, name] of [['ok', 'ok'], ['noise', 'noise'], ['differs', 'differs'], ['cannot tell', 'unsure']]) colours[verdict!] = style.getPropertyValue(`--${name}`).trim();
    const inner = width - pad.left - pad.right;
    return pairs.map((row, index): Dot => {
      const x = pad.left + (pairs.length > 1 ? (index / (pairs.length - 1)) * inner : inner / 2);
      let place = (Math.log10(row.relL2) - scale.low) / (scale.high - scale.low);
      if (row.relL2 === 0) place = 0; // equal: on the ground
      else if (!Number.isFinite(row.relL2)) place = row.verdict === 'ok' ? 0 : 1; // nan, inf or not comparable: at the top
      const y = height - pad.bottom - Math.min(1, Math.max(0, place)) * (height - pad.top - pad.bottom);
      return { row, x, y, colour: colours[row.verdict] ?? '#888' };
    });
  }, [pairs, width, scale, night]);

  useEffect(() => {
    const target = canvas.current;
    if (!target || !width) return;
    const ratio = devicePixelRatio || 1;
    target.width = Math.round(width * ratio);
    target.height = Math.round(height * ratio);
    const context = target.getContext('2d')!;
    const style = getComputedStyle(target);
    const ink = style.getPropertyValue('--text-2').trim();
    const line = style.getPropertyValue('--line').trim();
    const floor = style.getPropertyValue('--floor').trim();
    const differs = style.getPropertyValue('--differs').trim();
    const surface = style.getPropertyValue('--surface').trim();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${style.fontFamily}`;
    const bottom = height - pad.bottom;
    const toY = (value: number) => bottom - ((Math.log10(value) - scale.low) / (scale.high - scale.low)) * (bottom - pad.top);

    const skip = Math.ceil((scale.high - scale.low) / 6);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let power = scale.low; power <= scale.high; power += skip) {
      const y = Math.round(toY(10 ** power)) + 0.5;
      context.strokeStyle = line;
      context.beginPath();
      context.moveTo(pad.left, y);
      context.lineTo(width - pad.right, y);
      context.stroke();
      context.fillStyle = ink;
      context.fillText(power === 0 ? '1' : power === 1 ? '10' : `1e${power}`.replace('-', '−'), pad.left - 8, y);
    }

    // Below the floor, one rounding explains the error.
    const under = dots.filter((dot) => dot.row.floor > 0);
    if (under.length > 0) {
      context.fillStyle = floor;
      context.beginPath();
      context.moveTo(under[0]!.x, bottom);
      for (const dot of under) context.lineTo(dot.x, Math.min(bottom, Math.max(pad.top, toY(dot.row.floor))));
      context.lineTo(under[under.length - 1]!.x, bottom);
      context.fill();
      const label = 'below: less than one rounding';
      const wideLabel = context.measureText(label).width + 18;
      if (wideLabel + 260 < width) {
        context.fillRect((width - wideLabel) / 2, height - 17, 12, 10);
        context.fillStyle = ink;
        context.textAlign = 'left';
        context.textBaseline = 'alphabetic';
        context.fillText(label, (width - wideLabel) / 2 + 18, height - 8);
      }
    }

    const firstDot = dots.find((dot) => dot.row.id === first);
    if (firstDot) {
      context.strokeStyle = differs;
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(firstDot.x, pad.top - 6);
      context.lineTo(firstDot.x, bottom);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = differs;
      context.textBaseline = 'alphabetic';
      const label = 'first divergence';
      const wide = context.measureText(label).width;
      const right = firstDot.x + 6 + wide < width - pad.right;
      context.textAlign = right ? 'left' : 'right';
      context.fillText(label, firstDot.x + (right ? 5 : -5), pad.top - 8);
    }

    const radius = dots.length > 3000 ? 1.2 : dots.length > 600 ? 1.8 : 3;
    const order = (dot: Dot) => (dot.row.verdict === 'differs' ? 2 : dot.row.verdict === 'cannot tell' ? 1 : 0);
    for (const dot of [...dots].sort((p, q) => order(p) - order(q))) {
      context.fillStyle = dot.colour;
      context.beginPath();
      context.arc(dot.x, dot.y, radius, 0, 2 * Math.PI);
      context.fill();
    }
    const strong = (dot: Dot) => {
      context.beginPath();
      context.arc(dot.x, dot.y, radius + 2.5, 0, 2 * Math.PI);
      context.fillStyle = dot.colour;
      context.fill();
      context.lineWidth = 2;
      context.strokeStyle = surface;
      context.stroke();
      context.lineWidth = 1;
    };
    if (firstDot) strong(firstDot);
    if (hover) strong(hover);
    context.fillStyle = ink;
    context.textAlign = 'left';
    context.textBaseline = 'alphabetic';
    context.fillText('first', pad.left, height - 8);
    context.textAlign = 'right';
    context.fillText('execution order → last', width - pad.right, height - 8);
  }, [dots, width, scale, first, hover, night]);

  const nearest = (event: MouseEvent): Dot | null => {
    const frame = canvas.current!.getBoundingClientRect();
    const x = event.clientX - frame.left;
    const y = event.clientY - frame.top;
    let found: Dot | null = null;
    let closest = 28;
    for (const dot of dots) {
      const distance = Math.abs(dot.x - x) + 0.35 * Math.abs(dot.y - y);
      if (distance < closest) { closest = distance; found = dot; }
    }
    return found;
  };

  if (pairs.length === 0) return null;
  const firstRow = pairs.find((row) => row.id === first);
  const label = `Relative error of ${pairs.length} tensors in execution order, log scale.${firstRow ? ` First divergence: ${visible(firstRow.name)}, ${short(firstRow.relL2)}.` : ''} The list below has the same numbers.`;
  return (
    <div class="chart" ref={box}>
      <canvas
        ref={canvas} role="img" aria-label={label} class={hover ? 'pointing' : ''}
        onMouseMove={(event) => setHover(nearest(event))} onMouseLeave={() => setHover(null)}
        onClick={(event) => { const dot = nearest(event); if (dot) open(dot.row.id); }}
      />
      <p class="chart-note num" aria-hidden="true">
        {hover ? <><b><bdi>{middle(visible(hover.row.name), 70)}</bdi></b> &ensp;error {short(hover.row.relL2)}{Number.isFinite(hover.row.roundings) ? `, ${short(hover.row.roundings, 2)} roundings` : ''}, {hover.row.verdict}</>
          : <span class="quiet">relative error of each tensor; point to name it, click to open it</span>}
      </p>
    </div>
  );
}
