// What the sections share: tiles, meters, names that wrap, choices.
import type { ComponentChildren } from "preact";
import { percent, shown } from "./format";

/** A name that wraps where it has a separator, rather than within a word. */
export function Name({ text, longest }: { text: string; longest?: number }) {
  const parts = shown(text, longest).split(/(?<=[:/_.-])/);
  return (
    <bdi>
      {parts.map((part, place) => (
        <>
          {place > 0 && <wbr />}
          {part}
        </>
      ))}
    </bdi>
  );
}

export function Tile({ figure, caption, kind = "" }: { figure: string; caption: string; kind?: string }) {
  return (
    <div class="tile">
      <b class={kind}>{figure}</b>
      <span>{caption}</span>
    </div>
  );
}

/** A share as a bar and a number. */
export function Meter({ part, whole }: { part: number; whole: number }) {
  const share = whole ? part / whole : 0;
  return (
    <span class="meter">
      <i style={{ "--part": `${(100 * share).toFixed(1)}%` }} />
      <span>{percent(part, whole)}</span>
    </span>
  );
}

export function Choice(props: {
  label: string;
  value: string;
  options: [value: string, text: string][];
  onChange: (value: string) => void;
}) {
  return (
    <label class="choice">
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.options.map(([value, text]) => (
          <option value={value} selected={value === props.value}>
            {shown(text, 80)}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Section({ title, id, children }: { title: string; id: string; children: ComponentChildren }) {
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  );
}

/** Facts in two columns. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
