// Which plane is looked at, and where: a slider and a number per axis, and which two axes span the plane.
import { moveAxis, at, detail, plane, setAxes, shape } from '../subject';
import { visible } from '../format';

export function axisName(axis: number): string {
  const name = detail.value?.profiles?.find((each) => each.axis === axis)?.name;
  return name ? visible(name) : '';
}

export function Axes() {
  const sizes = shape.value;
  if (sizes.length === 0) return <p class="quiet">A single value: there is no axis to move along.</p>;
  const { row, column } = plane.value;
  return (
    <table class="axes">
      <caption class="sr">Axes of the tensor: where the view stands, and which axes span the plane</caption>
      <thead><tr><th scope="col">axis</th><th scope="col" class="wide">index</th><th scope="col" />{sizes.length > 1 ? <><th scope="col">down</th><th scope="col">across</th></> : null}</tr></thead>
      <tbody>
        {sizes.map((size, axis) => {
          const label = `axis ${axis}${axisName(axis) ? ` (${axisName(axis)})` : ''}`;
          return (
            <tr key={axis} class={axis === row || axis === column ? 'in-plane' : ''}>
              <th scope="row" class="nowrap"><span class="num">{axis}</span> <bdi class="quiet">{axisName(axis)}</bdi></th>
              <td class="wide"><input type="range" min={0} max={size - 1} step={1} value={at.value[axis]} disabled={size <= 1} aria-label={`${label}, slider`} onInput={(event) => moveAxis(axis, Number((event.target as HTMLInputElement).value))} /></td>
              <td class="num nowrap"><input type="number" class="index" min={0} max={size - 1} step={1} value={at.value[axis]} disabled={size <= 1} aria-label={`${label}, index`} onChange={(event) => moveAxis(axis, Number((event.target as HTMLInputElement).value) || 0)} /> <span class="quiet">of {size}</span></td>
              {sizes.length > 1 ? (
                <>
                  <td class="centre"><input type="radio" name="axis-row" checked={axis === row} aria-label={`${label} runs down`} onChange={() => setAxes(axis, axis === column ? row : column)} /></td>
                  <td class="centre"><input type="radio" name="axis-column" checked={axis === column} aria-label={`${label} runs across`} onChange={() => setAxes(axis === row ? column : row, axis)} /></td>
                </>
              ) : null}
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
