// What is known of the box that is selected.
import { bytes, count, flops, percent, plural, shown } from "../format";
import type { GraphData } from "../data";
import { Facts, Name } from "../parts";
import { copyText } from "../table";
import type { Colouring } from "./colours";
import { opKey } from "./colours";
import type { Box, Tree } from "./tree";

export function Details(props: {
  graph: GraphData;
  other: GraphData | null;
  tree: Tree;
  box: Box | null;
  target: string;
  colourings: Colouring[];
  link: (box: Box) => string;
  onSelect: (box: Box) => void;
  onToggle: (box: Box) => void;
  isOpen: (box: Box) => boolean;
}) {
  const { box } = props;
  if (!box) {
    return (
      <aside class="details card" aria-label="Details">
        <p class="faint">
          Click a box for its details. A triangle, a double click or Enter unfolds a box; arrow keys walk from box to box; drag and
          scroll to move and zoom; <kbd>/</kbd> searches.
        </p>
      </aside>
    );
  }
  return (
    <aside class="details card" aria-label="Details" aria-live="polite">
      <h3>
        <Name text={box.title} />
      </h3>
      <p class="faint">
        <Name text={box.path || "(root)"} />
      </p>
      <p class="buttons">
        {box.children.length > 0 && (
          <button type="button" onClick={() => props.onToggle(box)}>
            {props.isOpen(box) ? "Fold" : "Unfold"}
          </button>
        )}
        <button
          type="button"
          onClick={() => {
            history.replaceState(null, "", props.link(box));
            void copyText(location.href);
          }}
        >
          Copy link
        </button>
      </p>
      {box.op >= 0 ? <OpFacts {...props} op={box.op} /> : <GroupFacts {...props} box={box} />}
    </aside>
  );
}

type OpProps = Parameters<typeof Details>[0] & { op: number };

function OpFacts(props: OpProps) {
  const { graph, op, other } = props;
  const [name, attributes, inputs, outputs, work, moved] = graph.kinds[graph.kind[op]!]!;
  const verdict = graph.verdicts[graph.verdict[op]!];
  const island = graph.islands[graph.island[op]!];
  const line = graph.lines[graph.line[op]!];
  const consumers = graph.sources.flatMap((sources, each) => (sources.includes(op) ? [each] : []));
  const match = other ? other.names.findIndex((_, each) => opKey(other, each) === opKey(graph, op)) : -1;
  return (
    <>
      {verdict && (
        <div class="verdict">
          <b>
            ⌂ Stays on the host: <span class="tag">{verdict[0]}</span>
          </b>
          <p>{shown(verdict[1], 1000)}</p>
          {verdict[2] && <p class="faint">{shown(verdict[2], 1000)}</p>}
        </div>
      )}
      <Facts
        facts={[
          ["Op", <code><Name text={name} /></code>],
          ["Name", <code><Name text={graph.names[op]!} /></code>],
          ...(island ? [["Runs in", `${shown(island, 60)} on ${shown(props.target, 60)}`] as [string, string]] : []),
          ...(line ? [["Source", <code><Name text={line} /></code>] as [string, preact.JSX.Element]] : []),
          ["FLOPs", flops(work)],
          ["Bytes moved", bytes(moved)],
        ]}
      />
      {other && <Other graph={graph} other={other} op={op} match={match} />}
      <h4>Inputs</h4>
      <ul class="plain">
        {inputs.map(([argument, kind]) => (
          <li>
            {shown(argument, 60)} <code>{shown(kind, 80)}</code>
          </li>
        ))}
      </ul>
      <Neighbours {...props} title="from" ops={graph.sources[op]!} />
      <h4>Outputs</h4>
      <ul class="plain">
        {outputs.map((kind) => (
          <li>
            <code>{shown(kind, 80)}</code>
          </li>
        ))}
      </ul>
      <Neighbours {...props} title="to" ops={consumers} />
      {attributes.length > 0 && (
        <>
          <h4>Arguments</h4>
          <Facts facts={attributes.map(([argument, value]) => [shown(argument, 60), <code>{shown(value, 300)}</code>])} />
        </>
      )}
    </>
  );
}

function Neighbours(props: OpProps & { title: string; ops: number[] }) {
  const { graph, tree } = props;
  if (!props.ops.length) return null;
  return (
    <ul class="plain neighbours">
      {props.ops.slice(0, 12).map((each) => (
        <li>
          {props.title}{" "}
          <button type="button" class="link" onClick={() => props.onSelect(tree.boxOfOp[each]!)}>
            {shown(graph.names[each]!, 80)}
          </button>
        </li>
      ))}
      {props.ops.length > 12 && <li>and {count(props.ops.length - 12)} more</li>}
    </ul>
  );
}

function Other({ graph, other, op, match }: { graph: GraphData; other: GraphData; op: number; match: number }) {
  if (match < 0) return <p class="note">The other run has no such op.</p>;
  const place = (data: GraphData, each: number) =>
    data.island[each]! >= 0 ? data.islands[data.island[each]!]! : (data.verdicts[data.verdict[each]!]?.[0] ?? "host");
  const [mine, its] = [graph.kinds[graph.kind[op]!]!, other.kinds[other.kind[match]!]!];
  const rows: [string, string, string][] = [
    ["Runs in", place(graph, op), place(other, match)],
    ["Output", mine[3].join(", "), its[3].join(", ")],
    ["FLOPs", flops(mine[4]), flops(its[4])],
    ["Bytes", bytes(mine[5]), bytes(its[5])],
  ];
  return (
    <table class="compare">
      <thead>
        <tr>
          <th scope="col">Compared</th>
          <th scope="col">here</th>
          <th scope="col">there</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([name, here, there]) => (
          <tr class={here === there ? "" : "differs"}>
            <th scope="row">{name}</th>
            <td>{shown(here, 80)}</td>
            <td>
              {here === there ? "" : "≠ "}
              {shown(there, 80)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function GroupFacts(props: Parameters<typeof Details>[0] & { box: Box }) {
  const { graph, box } = props;
  const sum = (place: 4 | 5) => box.ops.reduce((all, op) => all + graph.kinds[graph.kind[op]!]![place], 0);
  const whole = (place: 4 | 5) => props.tree.root.ops.reduce((all, op) => all + graph.kinds[graph.kind[op]!]![place], 0);
  const kinds = new Map<string, number>();
  for (const op of box.ops) kinds.set(graph.kinds[graph.kind[op]!]![0], (kinds.get(graph.kinds[graph.kind[op]!]![0]) ?? 0) + 1);
  const stays = box.ops.filter((op) => graph.verdict[op]! >= 0);
  const known = [...kinds].sort((one, other) => other[1] - one[1]);
  return (
    <>
      <Facts
        facts={[
          ["Ops", count(box.ops.length)],
          ["FLOPs", `${flops(sum(4))}, ${percent(sum(4), whole(4))}`],
          ["Bytes moved", `${bytes(sum(5))}, ${percent(sum(5), whole(5))}`],
          ...(box.subtitle ? [["Name", <Name text={box.subtitle} />] as [string, preact.JSX.Element]] : []),
        ]}
      />
      {stays.length > 0 && (
        <>
          <h4>⌂ {plural(stays.length, "op")} on the host</h4>
          <ul class="plain">
            {stays.slice(0, 20).map((op) => (
              <li>
                <button type="button" class="link" onClick={() => props.onSelect(props.tree.boxOfOp[op]!)}>
                  {shown(graph.names[op]!, 80)}
                </button>{" "}
                <span class="tag">{graph.verdicts[graph.verdict[op]!]![0]}</span>
              </li>
            ))}
            {stays.length > 20 && <li>and {count(stays.length - 20)} more</li>}
          </ul>
        </>
      )}
      <h4>Ops in it</h4>
      <ul class="plain">
        {known.slice(0, 12).map(([name, times]) => (
          <li>
            {count(times)} × <code>{shown(name, 80)}</code>
          </li>
        ))}
        {known.length > 12 && <li>and {count(known.length - 12)} other kinds</li>}
      </ul>
    </>
  );
}
