// Causes with their evidence: the sentence, how sure it is and why, what was measured, what to check.
import type { Cause, Evidence, Wire } from '../api';
import { number } from '../api';
import { full, grouped, plural, short, visible } from '../format';

const find = (cause: Cause, name: string): Evidence | undefined => (Array.isArray(cause.evidence) ? cause.evidence.find((each) => each.name === name) : undefined);
const numberOf = (cause: Cause, name: string) => number(find(cause, name)?.value as Wire);

function percent(share: number): string {
  if (share >= 0.99995) return 'all';
  return `${short(100 * share, share > 0.99 ? 4 : 3)} %`;
}

// What the confidence of this cause means, in words.
export function confidenceText(cause: Cause): string {
  const explained = numberOf(cause, 'explained');
  if (cause.id === 'structure') return '';
  if (!Number.isFinite(explained)) return 'a finding, not a prediction of values: the test itself says how sure it is';
  const fitted = numberOf(cause, 'fitted');
  const price = fitted > 0 ? `, less what ${plural(fitted, 'fitted number')} would explain by chance` : '; no number was fitted';
  return `${percent(explained)} of the error's energy follows from it${price}`;
}

// Short beside the numbers; what each of them is, to the letter, stands in its tooltip.
const labels: Record<string, string> = {
  against: 'held against', part: 'looked at', elements: 'elements that are off', error: 'size of the error', rounding: 'of that, rounding',
  left: 'left under this cause', explained: 'share explained', fitted: 'numbers fitted',
};

function Measured({ item }: { item: Evidence }) {
  const value = typeof item.value === 'string' ? number(item.value) : item.value;
  const isNumber = typeof value === 'number' && !(typeof item.value === 'string' && Number.isNaN(value));
  const text = isNumber ? (Number.isInteger(value) ? grouped(value) : short(value, 4)) : visible(String(item.value ?? ''));
  return (
    <tr>
      <th scope="row" title={visible(item.text)}>{labels[item.name] ?? visible(item.text || item.name)}</th>
      <td class={isNumber ? 'num' : ''} title={isNumber ? full(value as number) : undefined}>{text}</td>
    </tr>
  );
}

export function CauseList({ causes }: { causes: readonly Cause[] }) {
  const tied = causes.filter((cause) => cause.tied).length;
  return (
    <>
      {tied > 1 ? <p class="tie">A tie: {tied} causes explain it equally well, and the data do not choose between them. What to check tells them apart.</p> : null}
      <ol class="cause-list">
        {causes.map((cause, index) => {
          const meaning = confidenceText(cause);
          const evidence = Array.isArray(cause.evidence) ? cause.evidence : [];
          return (
            <li key={index} data-cause={cause.id}>
              {cause.id === 'structure' ? <p><b>No tested cause explains it.</b> {visible(cause.summary)}</p> : (
                <>
                  <p class="cause-head">
                    <b class="cause-id">{visible(cause.id)}</b>{cause.tied ? <span class="tag">a tie</span> : null}
                    <span class="confidence"><meter min={0} max={1} value={cause.confidence} aria-label="confidence" /> <span class="num">confidence {short(cause.confidence, 3)}</span></span>
                  </p>
                  <p>{visible(cause.summary)}</p>
                  {meaning ? <p class="quiet">{meaning}.</p> : null}
                </>
              )}
              {cause.check ? <p><b>Check</b> {visible(cause.check)}.</p> : null}
              {evidence.length ? (
                <table class="plain numbers evidence">
                  <caption class="sr">What was measured for {visible(cause.id)}</caption>
                  <tbody>{evidence.map((item, at) => <Measured key={at} item={item} />)}</tbody>
                </table>
              ) : null}
            </li>
          );
        })}
      </ol>
    </>
  );
}
