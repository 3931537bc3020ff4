// The model graph: one or more panes in step, search, colouring, comparison, and the details of a box.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { loadBlock, sameModel, type Data, type GraphData, type GraphEntry } from "../data";
import { count, plural, shown } from "../format";
import { Choice } from "../parts";
import { linkTo, type Route } from "../route";
import { colourings } from "./colours";
import { Details } from "./details";
import { Pane } from "./pane";
import { ancestors, buildTree, type Box, type Tree } from "./tree";

const MOST_PANES = 4;
const MOST_FOUND = 100;

interface View {
  id: string;
  title: string;
  entry: GraphEntry;
  byIsland: boolean;
}

/** Returns what can be shown of a model: the model as written, each target's ATen graph, and its islands. */
function viewsOf(data: Data, model: string): View[] {
  return data.graphs
    .filter((entry) => entry.ops > 0 && sameModel(entry.model, model))
    .flatMap((entry) => {
      const run = entry.run ? `${entry.run}: ` : "";
      if (entry.view === "written") return [{ id: `${entry.run}written`, title: `${run}as written`, entry, byIsland: false }];
      return [
        { id: `${entry.run}aten ${entry.target}`, title: `${run}${entry.target}, ATen graph`, entry, byIsland: false },
        { id: `${entry.run}islands ${entry.target}`, title: `${run}${entry.target}, islands`, entry, byIsland: true },
      ];
    });
}

function modelsOf(data: Data): string[] {
  const found: string[] = [];
  for (const graph of data.graphs) if (graph.ops && !found.some((name) => sameModel(name, graph.model))) found.push(graph.model);
  return found;
}

function firstView(views: View[], route: Route): string {
  const wanted = route.view === "written" ? "written" : route.target ? `aten ${route.target}` : (route.view ?? "");
  const found =
    views.find((view) => view.id === wanted) ??
    views.find((view) => view.entry.view === "aten" && !view.entry.run && view.entry.target !== "host") ??
    views.find((view) => view.entry.view === "aten" && !view.entry.run) ??
    views[0]!;
  return found.id;
}

export function GraphSection({ data, route }: { data: Data; route: Route }) {
  const models = useMemo(() => modelsOf(data), [data]);
  const model = models.find((name) => sameModel(name, route.model ?? "")) ?? models[0]!;
  const views = useMemo(() => viewsOf(data, model), [data, model]);
  const [panes, setPanes] = useState<string[]>(() => [firstView(views, route)]);
  const [against, setAgainst] = useState("");
  const [colour, setColour] = useState("");
  const [unfolded, setUnfolded] = useState<ReadonlySet<string>>(new Set());
  const [selected, setSelected] = useState<{ pane: number; box: Box } | null>(null);
  const graphs = useGraphs(views);
  const search = useRef<HTMLInputElement>(null);

  // Another model, or a link to another place: its first view takes the first pane.
  const where = JSON.stringify([route.model, route.target, route.view, route.op, route.module]);
  const opened = useRef("");
  useEffect(() => {
    setPanes((old) => {
      const kept = old.filter((id) => views.some((view) => view.id === id));
      const wanted = firstView(views, route);
      const named = route.target || route.view || !kept.length;
      return named && !kept.includes(wanted) ? [wanted, ...kept.slice(1)] : kept;
    });
    setSelected(null);
  }, [where, views]);

  const shownViews = panes.map((id) => views.find((view) => view.id === id)).filter((view) => view !== undefined);
  const trees = useTrees(shownViews, graphs);
  const other = against ? (graphs.get(views.find((view) => view.id === against)?.entry.block ?? -1) ?? null) : null;

  const reveal = useCallback((box: Box) => {
    setUnfolded((old) => {
      const hidden = ancestors(box).filter((each) => each.kind !== "root" && !old.has(each.key));
      return hidden.length ? new Set([...old, ...hidden.map((each) => each.key)]) : old;
    });
  }, []);
  const select = useCallback(
    (pane: number, box: Box) => {
      reveal(box);
      setSelected({ pane, box });
    },
    [reveal],
  );
  const toggle = useCallback((box: Box) => {
    setUnfolded((old) => {
      const next = new Set(old);
      if (!next.delete(box.key)) next.add(box.key);
      return next;
    });
  }, []);

  // At first, so much is unfolded as fits; then the place that a link names is shown.
  const first = trees[0];
  const ready = useRef("");
  useEffect(() => {
    if (!first) return;
    if (ready.current !== model) setUnfolded(startOf(first.root));
    ready.current = model;
    const key = `${where}${shownViews[0]!.id}`;
    if (opened.current === key) return;
    opened.current = key;
    const box = boxOf(first, graphs.get(shownViews[0]!.entry.block)!, route);
    if (box) select(0, box);
  }, [first, where]);
  useEffect(() => {
    const slash = (event: KeyboardEvent) => {
      if (event.key !== "/" || /INPUT|SELECT|TEXTAREA/.test((event.target as Element).tagName)) return;
      event.preventDefault();
      search.current?.focus();
    };
    addEventListener("keydown", slash);
    return () => removeEventListener("keydown", slash);
  }, []);

  const [query, setQuery] = useState("");
  const found = useMemo(() => trees.map((tree, pane) => (tree ? find(tree, graphs.get(shownViews[pane]!.entry.block)!, query) : [])), [trees, query]);
  const foundSets = useMemo(() => found.map((boxes) => new Set(boxes)), [found]);
  const [hit, setHit] = useState(0);
  const goTo = (place: number) => {
    const boxes = found[0] ?? [];
    if (!boxes.length) return;
    const next = (place + boxes.length) % boxes.length;
    setHit(next);
    select(0, boxes[next]!);
  };

  const main = shownViews[selected?.pane ?? 0] ?? shownViews[0];
  const mainGraph = main && graphs.get(main.entry.block);
  const choices = useMemo(
    () => (mainGraph && main ? colourings(mainGraph, main.entry.target, other === mainGraph ? null : other) : []),
    [mainGraph, main, other],
  );
  const chosen = choices.find((each) => each.id === colour) ?? choices[0];
  const runs = views.filter((view) => !view.byIsland);
  const link = (box: Box) =>
    linkTo("graph", {
      model,
      ...(main!.entry.view === "written" ? { view: "written" } : { target: main!.entry.target }),
      ...(box.op >= 0 ? { op: mainGraph!.names[box.op]!, module: box.path } : { module: box.path }),
    });

  return (
    <>
      <div class="tools graph-tools">
        {models.length > 1 && (
          <Choice label="Model" value={model} options={models.map((name) => [name, name])} onChange={(value) => (location.hash = linkTo("graph", { model: value }))} />
        )}
        <Choice
          label="Colour by"
          value={chosen?.id ?? ""}
          options={choices.map((each) => [each.id, each.title])}
          onChange={setColour}
        />
        {runs.length > 1 && (
          <Choice
            label="Compare with"
            value={against}
            options={[["", "nothing"], ...runs.map((view): [string, string] => [view.id, view.title])]}
            onChange={(value) => {
              setAgainst(value);
              setColour(value ? "difference" : "");
            }}
          />
        )}
        <form
          class="search"
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            goTo(selected && found[0]?.[hit] === selected.box ? hit + 1 : hit);
          }}
        >
          <input
            ref={search}
            type="search"
            placeholder="Search ops and modules"
            aria-label="Search ops and modules"
            value={query}
            onInput={(event) => {
              setQuery(event.currentTarget.value);
              setHit(0);
            }}
          />
          {query && (
            <span class="faint" role="status">
              {found[0]?.length ? `${found[0].length >= MOST_FOUND ? `${MOST_FOUND}+` : found[0].length} found` : "nothing found"}
            </span>
          )}
          {(found[0]?.length ?? 0) > 0 && (
            <>
              <button type="submit">Next</button>
              <button type="button" onClick={() => goTo(hit - 1)}>
                Previous
              </button>
            </>
          )}
        </form>
        <span class="gap" />
        <button type="button" onClick={() => setUnfolded(new Set())}>
          Fold all
        </button>
        {views.length > 1 && panes.length < MOST_PANES && (
          <button type="button" onClick={() => setPanes([...panes, views.find((view) => !panes.includes(view.id))?.id ?? views[0]!.id])}>
            Add a pane
          </button>
        )}
      </div>
      {chosen && (
        <ul class="legend" aria-label="Colours">
          {chosen.legend.map((each) => (
            <li>
              <svg width="34" height="18" aria-hidden="true" class={`node ${each.style}`} style={each.style === "cost" ? { "--heat": "60%" } : undefined}>
                <rect x="1" y="1" width="32" height="16" rx="4" />
              </svg>
              {each.sign} {each.text}
            </li>
          ))}
        </ul>
      )}
      <div class="graph">
        <div class={`panes panes-${shownViews.length}`}>
          {shownViews.map((view, number) => {
            const graph = graphs.get(view.entry.block);
            const tree = trees[number];
            return (
              <div class="card pane-card">
                <div class="pane-head">
                  <Choice
                    label="Shows"
                    value={view.id}
                    options={views.map((each) => [each.id, each.title])}
                    onChange={(value) => setPanes(panes.map((id, place) => (place === number ? value : id)))}
                  />
                  <span class="faint">{plural(view.entry.ops, "op")}</span>
                  {other && graph && other !== graph && <OnlyThere graph={graph} other={other} />}
                  <span class="gap" />
                  {shownViews.length > 1 && (
                    <button type="button" aria-label={`Close the pane ${view.title}`} onClick={() => setPanes(panes.filter((_, place) => place !== number))}>
                      ✕
                    </button>
                  )}
                </div>
                {tree && graph ? (
                  <PaneOf
                    view={view}
                    graph={graph}
                    other={other === graph ? null : other}
                    tree={tree}
                    colour={chosen?.id ?? ""}
                    unfolded={unfolded}
                    selected={counterpart(selected, number, tree)}
                    found={foundSets[number] ?? new Set()}
                    onToggle={toggle}
                    onSelect={(box) => select(number, box)}
                  />
                ) : (
                  <p class="empty">Reading…</p>
                )}
              </div>
            );
          })}
        </div>
        {main && mainGraph && (
          <Details
            graph={mainGraph}
            other={other === mainGraph ? null : other}
            tree={trees[selected?.pane ?? 0] ?? trees[0]!}
            box={selected?.box ?? null}
            target={main.entry.target}
            colourings={choices}
            link={link}
            onSelect={(box) => select(selected?.pane ?? 0, box)}
            onToggle={toggle}
            isOpen={(box) => unfolded.has(box.key)}
          />
        )}
      </div>
    </>
  );
}

function PaneOf(props: {
  view: View;
  graph: GraphData;
  other: GraphData | null;
  tree: Tree;
  colour: string;
  unfolded: ReadonlySet<string>;
  selected: Box | null;
  found: ReadonlySet<Box>;
  onToggle: (box: Box) => void;
  onSelect: (box: Box) => void;
}) {
  const choices = useMemo(() => colourings(props.graph, props.view.entry.target, props.other), [props.graph, props.other]);
  const colouring = choices.find((each) => each.id === props.colour) ?? choices[0]!;
  return <Pane {...props} label={`Graph: ${shown(props.view.title, 80)}`} colouring={colouring} />;
}

/** Says how many ops of the other run this one does not have. */
function OnlyThere({ graph, other }: { graph: GraphData; other: GraphData }) {
  const missing = useMemo(() => {
    const mine = new Set(graph.names.map((name, op) => `${graph.modules[graph.module[op]!]![0]}#${name}`));
    return other.names.filter((name, op) => !mine.has(`${other.modules[other.module[op]!]![0]}#${name}`)).length;
  }, [graph, other]);
  return missing ? <span class="faint">{count(missing)} ops only in the other</span> : null;
}

function useGraphs(views: View[]): Map<number, GraphData> {
  const [graphs, setGraphs] = useState(new Map<number, GraphData>());
  useEffect(() => {
    for (const { entry } of views) {
      void loadBlock<GraphData>(entry.block).then((graph) =>
        setGraphs((old) => (old.has(entry.block) ? old : new Map(old).set(entry.block, graph))),
      );
    }
  }, [views]);
  return graphs;
}

const known = new WeakMap<GraphData, Map<boolean, Tree>>();

function treeOf(graph: GraphData, byIsland: boolean): Tree {
  let trees = known.get(graph);
  if (!trees) known.set(graph, (trees = new Map()));
  let tree = trees.get(byIsland);
  if (!tree) trees.set(byIsland, (tree = buildTree(graph, byIsland)));
  return tree;
}

function useTrees(views: View[], graphs: Map<number, GraphData>): (Tree | undefined)[] {
  const ids = views.map((view) => `${view.id} ${graphs.has(view.entry.block)}`).join();
  return useMemo(
    () =>
      views.map((view) => {
        const graph = graphs.get(view.entry.block);
        return graph && treeOf(graph, view.byIsland);
      }),
    [ids, views[0]?.entry.model],
  );
}

/** Returns what to unfold at first: level by level, as long as it is not too much to look at. */
function startOf(root: Box): Set<string> {
  const unfolded = new Set<string>();
  let level = root.children;
  let shownNow = level.length;
  while (level.length) {
    const next: Box[] = [];
    for (const box of level) {
      if (!box.children.length || shownNow + box.children.length > 28 || box.kind === "repeat") continue;
      unfolded.add(box.key);
      shownNow += box.children.length;
      next.push(...box.children);
    }
    level = next;
  }
  return unfolded;
}

function boxOf(tree: Tree, graph: GraphData, route: Route): Box | null {
  if (route.op) {
    const op = graph.names.findIndex(
      (name, place) => name === route.op && (!route.module || graph.modules[graph.module[place]!]![0] === route.module),
    );
    if (op >= 0) return tree.boxOfOp[op]!;
  }
  return route.module ? (tree.boxOfPath.get(route.module) ?? null) : null;
}

/** Returns the box of another pane that stands for the one that is selected: the same op, or its module. */
function counterpart(selected: { pane: number; box: Box } | null, pane: number, tree: Tree): Box | null {
  if (!selected) return null;
  if (selected.pane === pane) return selected.box;
  const { box } = selected;
  const same = box.op >= 0 ? tree.boxOfOp.find((each) => each.path === box.path && each.title === box.title) : undefined;
  return same ?? tree.boxOfPath.get(box.path) ?? null;
}

function find(tree: Tree, graph: GraphData, query: string): Box[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const boxes: Box[] = [];
  const walk = (box: Box): void => {
    if (boxes.length >= MOST_FOUND) return;
    if (box.kind !== "root") {
      const op = box.op;
      const verdict = op >= 0 ? graph.verdicts[graph.verdict[op]!]?.[0] : "";
      const text = [box.title, box.subtitle, box.path, op >= 0 ? `${graph.names[op]} ${graph.kinds[graph.kind[op]!]![0]} ${verdict}` : ""];
      const joined = text.join(" ").toLowerCase();
      if (words.every((word) => joined.includes(word))) boxes.push(box);
    }
    for (const child of box.children) walk(child);
  };
  walk(tree.root);
  return boxes;
}
