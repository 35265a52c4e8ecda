// Health checks: what is broken or suspicious in an input.
import type { Finding } from '../api';
import { visible } from '../format';
import { open, rows } from '../state';
import { Name, Panel } from './bits';

export function Findings({ findings }: { findings: readonly Finding[] }) {
  const ids = new Map(rows.value.filter((row) => row.id !== '').map((row) => [row.name, row.id]));
  return (
    <Panel id="health" title="Health">
      {findings.length === 0 ? <p class="good">✓ No faults: nothing that is NaN, infinite, unwritten, cut off or otherwise suspicious.</p> : (
        <table class="plain">
          <caption class="sr">What the checks found</caption>
          <thead><tr><th scope="col">level</th><th scope="col">tensor</th><th scope="col">what was found</th></tr></thead>
          <tbody>
            {findings.slice(0, 500).map((finding, index) => {
              const name = finding.tensor ?? '';
              const id = ids.get(name) ?? '';
              return (
                <tr key={index}>
                  <td><span class={`level level-${finding.severity === 'fault' ? 'fault' : finding.severity === 'note' ? 'note' : 'warning'}`}>{visible(finding.severity)}</span></td>
                  <td>{id ? <button type="button" class="link" onClick={() => open(id)}><Name text={name} most={60} /></button> : <Name text={name} most={60} />}</td>
                  <td>{visible(finding.text)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </Panel>
  );
}
