// Small charts of one tensor: error along each axis, histograms, candidate against reference.
import { useEffect, useRef, useState } from 'preact/hooks';
import * as api from '../api';
import { grouped, short } from '../format';
import { dark, fail } from '../state';
import { alone, at, detail, idOf, jumped, moveAxis, serial, shape, workspaceOf } from '../subject';
import { axisName } from './axes';
import { Panel, useSize } from './bits';

const wide = 600;

// Which index of the axis a bin begins at.
export const binStart = (bin: number, bins: number, size: number) => Math.ceil((bin * size) / bins);

function AxisProfile({ profile }: { profile: api.Profile }) {
  const size = shape.value[profile.axis] ?? profile.max.length;
  const max = profile.max.map(api.number);
  const rms = profile.rms.map(api.number);
  const bins = max.length;
  const [hover, setHover] = useState(-1);
  const finite = max.filter((value) => Number.isFinite(value) && value > 0);
  const top = finite.length ? Math.max(...finite) : 1;
  const tall = 64;
  const y = (value: number) => (Number.isFinite(value) ? tall - (value / top) * (tall - 6) : 0);
  const x = (bin: number) => (bin / bins) * wide;
  const steps = (values: number[]) => `M0 ${tall}${values.map((value, bin) => `L${x(bin).toFixed(1)} ${y(value).toFixed(1)}L${x(bin + 1).toFixed(1)} ${y(value).toFixed(1)}`).join('')}L${wide} ${tall}Z`;
  const worst = max.reduce((best, value, bin) => (!Number.isFinite(value) || value > (max[best] ?? -1) ? bin : best), 0);
  const binAt = (event: MouseEvent) => { const box = (event.currentTarget as Element).getBoundingClientRect(); return Math.min(bins - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * bins))); };
  const place = Math.min(bins - 1, Math.floor(((at.value[profile.axis] ?? 0) * bins) / size));
  const bin = hover >= 0 ? hover : worst;
  const go = (to: number) => { moveAxis(profile.axis, binStart(to, bins, size)); jumped.value++; };
  return (
    <figure class={`profile${alone.value ? ' of-values' : ''}`}>
      <figcaption><b>axis {profile.axis}</b> <bdi>{axisName(profile.axis)}</bdi> <span class="quiet num">{hover >= 0 ? 'at' : alone.value ? 'largest at' : 'worst at'} {binStart(bin, bins, size)}{bins < size ? `–${binStart(bin + 1, bins, size) - 1}` : ''}: max {short(max[bin]!)}, rms {short(rms[bin]!)}</span></figcaption>
      <svg viewBox={`0 0 ${wide} ${tall}`} preserveAspectRatio="none" role="img" aria-label={`${alone.value ? 'Magnitude' : 'Error'} along axis ${profile.axis}: largest ${short(max[worst]!)} at index ${binStart(worst, bins, size)}`}
        onMouseMove={(event) => setHover(binAt(event))} onMouseLeave={() => setHover(-1)} onClick={(event) => go(binAt(event))}>
        <path d={steps(max)} class="p-max" /><path d={steps(rms)} class="p-rms" />
        <rect x={x(place)} width={Math.max(1.5, wide / bins)} y={0} height={tall} class="p-here" />
      </svg>
      <button type="button" class="small" onClick={() => go(worst)}>Go to the {alone.value ? 'largest' : 'worst'}</button>
    </figure>
  );
}

function Sampled() {
  const d = detail.value;
  return d?.looked_at_all === false ? <p class="quiet small-text">From {grouped(d.looked_at ?? 0)} elements spread evenly over the tensor.</p> : null;
}

export function Profiles() {
  const profiles = (detail.value?.profiles ?? []).filter((each) => each.max.length > 1);
  if (profiles.length === 0) return null;
  return <Panel id="profiles" title={alone.value ? 'Magnitude along each axis' : 'Error along each axis'}><div class="profiles">{profiles.map((each) => <AxisProfile key={each.axis} profile={each} />)}</div><Sampled /></Panel>;
}

function Bars({ edges, series, label }: { edges: number[]; series: { counts: number[]; className: string; name: string }[]; label: string }) {
  const tall = 120;
  // Square roots: a few outliers among millions stay visible.
  const top = Math.sqrt(Math.max(1, ...series.flatMap((each) => each.counts)));
  const [hover, setHover] = useState(-1);
  const bins = series[0]!.counts.length;
  const path = (counts: number[]) => `M0 ${tall}${counts.map((count, bin) => { const y = (tall - (Math.sqrt(count) / top) * (tall - 4)).toFixed(1); return `L${((bin / bins) * wide).toFixed(1)} ${y}L${(((bin + 1) / bins) * wide).toFixed(1)} ${y}`; }).join('')}L${wide} ${tall}Z`;
  return (
    <figure class="histogram">
      <figcaption>{label} <span class="quiet num">{hover >= 0 ? `${short(edges[hover]!)} to ${short(edges[hover + 1]!)}: ${series.map((each) => `${each.name} ${grouped(each.counts[hover] ?? 0)}`).join(', ')}` : ''}</span></figcaption>
      <svg viewBox={`0 0 ${wide} ${tall}`} preserveAspectRatio="none" role="img" aria-label={`Histogram: ${label}, from ${short(edges[0]!)} to ${short(edges[edges.length - 1]!)}`}
        onMouseMove={(event) => { const box = (event.currentTarget as Element).getBoundingClientRect(); setHover(Math.min(bins - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * bins)))); }} onMouseLeave={() => setHover(-1)}>
        {series.map((each) => <path key={each.name} d={path(each.counts)} class={each.className} />)}
      </svg>
      <div class="scale num quiet"><span>{short(edges[0]!)}</span><span>{short(edges[edges.length - 1]!)}</span></div>
    </figure>
  );
}

export function Histograms() {
  const histogram = detail.value?.histograms;
  if (!histogram?.edges?.length) return null;
  const edges = histogram.edges.map(api.number);
  const values = [
    ...(histogram.a ? [{ counts: histogram.a, className: 'h-a', name: alone.value ? 'values' : 'reference' }] : []),
    ...(histogram.b ? [{ counts: histogram.b, className: 'h-b', name: 'candidate' }] : []),
  ];
  const other = histogram.difference_edges?.length ? histogram.difference_edges.map(api.number) : edges;
  return (
    <Panel id="histograms" title="Histograms">
      <div class="two">
        {values.length > 0 ? <Bars edges={edges} series={values} label={values.length > 1 ? 'reference and candidate' : 'values'} /> : null}
        {histogram.difference ? <Bars edges={other} series={[{ counts: histogram.difference, className: 'h-d', name: 'difference' }]} label="difference" /> : null}
      </div>
      <p class="quiet small-text">Heights are square roots of counts.</p>
      <Sampled />
    </Panel>
  );
}

function readScatter(answer: unknown): { a: number[]; b: number[] } {
  const both = answer as { a?: api.Wire[] | null; b?: api.Wire[] | null };
  return { a: (both.a ?? []).map(api.number), b: (both.b ?? []).map(api.number) };
}

function ScatterPlot() {
  const [points, setPoints] = useState<{ a: number[]; b: number[] } | null>(null);
  const [box, width] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const controller = new AbortController();
    api.scatter(workspaceOf(), idOf(), controller.signal).then((answer) => setPoints(readScatter(answer)), fail);
    return () => controller.abort();
  }, [serial.value]);
  const side = Math.min(width, 420);
  useEffect(() => {
    const target = canvas.current;
    if (!target || !points || side < 40) return;
    const ratio = devicePixelRatio || 1;
    target.width = target.height = Math.round(side * ratio);
    target.style.width = target.style.height = `${side}px`;
    const context = target.getContext('2d')!;
    const style = getComputedStyle(target);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, side, side);
    const finite = [...points.a, ...points.b].filter(Number.isFinite);
    let low = Math.min(...finite, 0);
    let high = Math.max(...finite, 0);
    if (!(high > low)) { low -= 1; high += 1; }
    const pad = 34;
    const x = (value: number) => pad + ((value - low) / (high - low)) * (side - pad - 8);
    const y = (value: number) => side - pad - ((value - low) / (high - low)) * (side - pad - 8);
    context.strokeStyle = style.getPropertyValue('--line').trim();
    context.strokeRect(pad + 0.5, 8.5, side - pad - 9, side - pad - 9);
    context.strokeStyle = style.getPropertyValue('--ok').trim();
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(x(low), y(low));
    context.lineTo(x(high), y(high));
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = style.getPropertyValue('--accent').trim();
    context.globalAlpha = points.a.length > 1500 ? 0.35 : 0.6;
    for (let i = 0; i < points.a.length; i++) {
      if (!Number.isFinite(points.a[i]!) || !Number.isFinite(points.b[i]!)) continue;
      context.beginPath();
      context.arc(x(points.a[i]!), y(points.b[i]!), 1.7, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
    context.fillStyle = style.getPropertyValue('--text-2').trim();
    context.font = `11px ${style.fontFamily}`;
    context.textAlign = 'left';
    context.fillText(short(low), pad, side - pad + 14);
    context.textAlign = 'right';
    context.fillText(short(high), side - 8, side - pad + 14);
    context.textAlign = 'center';
    context.fillText('reference →', (pad + side) / 2, side - 6);
    context.save();
    context.translate(12, (side - pad) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText('candidate →', 0, 0);
    context.restore();
  }, [points, side, dark.value]);
  return <div ref={box} class="scatter"><canvas ref={canvas} role="img" aria-label={`Candidate against reference, ${points?.a.length ?? 0} elements; equal values lie on the diagonal`} /></div>;
}

export function Scatter() {
  if (alone.value) return null;
  return <Panel id="scatter" title="Candidate against reference"><ScatterPlot /></Panel>;
}
