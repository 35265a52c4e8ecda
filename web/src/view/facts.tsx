// Statistics, the recipe and the causes of one tensor.
import { useEffect, useState } from 'preact/hooks';
import * as api from '../api';
import { elements, full, grouped, shapeText, short, visible } from '../format';
import { fail } from '../state';
import { alone, detail, idOf, serial, workspaceOf } from '../subject';
import { Name, Panel, Trouble } from './bits';
import { CauseList } from './causes';

const labels: Record<string, string> = {
  rel_l2: 'relative error (L2)', roundings: 'roundings', max_abs: 'largest difference', mean_abs: 'mean |difference|', mean: 'mean difference', mse: 'mean square',
  max_rel: 'largest relative', max_ulp: 'largest in ULP', cosine: 'cosine', norm_ratio: 'norm ratio', unequal: 'unequal elements', changed_fraction: 'share changed',
  noise_ratio: 'noise ratio', mismatched: 'outside the tolerance', masked: 'masked', non_finite_mismatch: 'NaN/Inf on one side', elements: 'elements', nan_both: 'NaN in both', inf_both: 'Inf in both',
};

function value(wire: unknown): string {
  if (typeof wire === 'boolean') return wire ? 'yes' : 'no';
  if (wire === null || wire === undefined) return '–';
  const number = api.number(wire as api.Wire);
  if (typeof wire === 'string' && !['nan', 'inf', '-inf'].includes(wire)) return visible(wire);
  if (Number.isInteger(number) && Math.abs(number) < 1e15) return grouped(number);
  return short(number, 6);
}
const exact = (wire: unknown) => (typeof wire === 'number' ? full(wire) : undefined);

export function Statistics() {
  const d = detail.value!;
  // Of a tensor without partner nothing was measured when the two inputs were compared: it is now, unless it is a giant.
  const [late, setLate] = useState<api.Statistics | undefined>(undefined);
  const missing = alone.value !== '' && !d.stats && elements(d.shape) > 0 && elements(d.shape) <= 2 ** 24;
  useEffect(() => {
    setLate(undefined);
    if (!missing) return undefined;
    const controller = new AbortController();
    api.blockStats(workspaceOf(), idOf(), d.shape.map(() => 0), d.shape, controller.signal).then((found) => setLate((found.a ?? found.b) as api.Statistics | undefined), fail);
    return () => controller.abort();
  }, [missing, idOf()]);
  const sides = alone.value ? [{ label: 'value', stats: d.stats ?? late }] : [{ label: 'reference', stats: d.stats_a }, { label: 'candidate', stats: d.stats_b }];
  const names = [...new Set(sides.flatMap((side) => Object.keys(side.stats ?? {})))].filter((name) => sides.every((side) => typeof side.stats?.[name] !== 'object' || Array.isArray(side.stats?.[name])));
  const metrics = Object.keys(labels).filter((key) => d[key] !== undefined && d[key] !== null);
  const quantiles = Object.entries(d.quantiles ?? {});
  const cell = (wire: unknown) => (Array.isArray(wire) ? shapeText(wire as number[]) : value(wire));
  return (
    <Panel id="statistics" title="Statistics">
      <div class="two">
        {names.length === 0 ? null : <table class="plain numbers">
          <caption>{alone.value ? 'Values' : 'Both sides'}</caption>
          <thead><tr><td />{sides.map((side) => <th scope="col" key={side.label}>{side.label}</th>)}</tr></thead>
          <tbody>
            {names.map((name) => <tr key={name}><th scope="row">{visible(name)}</th>{sides.map((side) => <td key={side.label} class="num" title={exact(side.stats?.[name])}>{cell(side.stats?.[name])}</td>)}</tr>)}
          </tbody>
        </table>}
        {metrics.length > 0 && !alone.value ? (
          <table class="plain numbers">
            <caption>Difference</caption>
            <tbody>
              {metrics.map((key) => <tr key={key}><th scope="row">{labels[key]}</th><td class="num" title={exact(d[key])}>{value(d[key])}</td></tr>)}
              {quantiles.map(([name, wire]) => <tr key={name}><th scope="row">|difference| {visible(name).replace('_', '.')}</th><td class="num" title={exact(wire)}>{value(wire)}</td></tr>)}
            </tbody>
          </table>
        ) : null}
      </div>
      {names.length === 0 && metrics.length === 0 && !missing ? <p class="quiet">Nothing was measured of it.</p> : null}
    </Panel>
  );
}

export function Causes() {
  const [causes, setCauses] = useState<api.Cause[] | null>(null);
  const [error, setError] = useState<api.ApiError | null>(null);
  const d = detail.value;
  const asked = !alone.value && !d?.problem && (d?.verdict === 'differs' || d?.verdict === 'cannot tell' || Boolean(d?.remapped && !d.identical));
  useEffect(() => {
    setCauses(null);
    setError(null);
    if (!asked) return undefined;
    const controller = new AbortController();
    api.causes(workspaceOf(), idOf(), controller.signal).then((found) => setCauses(found), (reason: unknown) => { if (reason instanceof api.ApiError) setError(reason); else fail(reason); });
    return () => controller.abort();
  }, [asked, serial.value]);
  if (!asked) return null;
  return (
    <Panel id="cause" title="Cause">
      {error ? <Trouble message={error.message} fix={error.fix} /> : null}
      {causes === null && !error ? <p class="quiet" role="status">Testing what could explain it…</p> : null}
      {causes?.length === 0 ? <p>No cause that was tested explains it. The profile along each axis may show what the bad elements have in common.</p> : null}
      <CauseList causes={causes ?? []} />
    </Panel>
  );
}

export function Recipe() {
  const d = detail.value!;
  if (alone.value) return null;
  const inFile = (file: string | null | undefined) => (file ? <> <span class="quiet">in <Name text={file} most={60} /></span></> : null);
  return (
    <dl class="recipe">
      <div><dt>paired by</dt><dd>{visible(d.how ?? '') || '–'}{d.ambiguous ? <span class="tag warn">ambiguous</span> : null}{d.guess ? <span class="tag warn">a guess</span> : null}</dd></div>
      <div><dt>reference</dt><dd><Name text={d.name} /> <span class="quiet num">{d.dtype_a} {shapeText(d.shape_a ?? d.shape)}</span>{inFile(d.file_a)}</dd></div>
      <div><dt>candidate</dt><dd><Name text={d.name_b ?? ''} /> <span class="quiet num">{d.dtype_b} {shapeText(d.shape_b ?? d.shape)}</span>{inFile(d.file_b)}</dd></div>
      <div><dt>aligned by</dt><dd>{d.recipe ? visible(d.recipe) : 'nothing: the layouts are the same'}</dd></div>
      {d.operation ? <div><dt>operation</dt><dd>{visible(d.operation)}</dd></div> : null}
    </dl>
  );
}
