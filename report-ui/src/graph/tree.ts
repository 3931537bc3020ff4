// A graph's ops as a tree of boxes: islands, modules, blocks that repeat, ops; with the edges at each level.
import type { GraphData } from "../data";
import { shortOp } from "../format";

export interface Edge {
  from: Box;
  to: Box;
  label: string;
  count: number;
}

export interface Box {
  id: string; // its own in the tree
  key: string; // what folds and unfolds it, the same in all panes
  kind: "root" | "island" | "module" | "repeat" | "op";
  title: string;
  subtitle: string;
  path: string; // the module's; of an op the module's that calls it
  parent: Box | null;
  depth: number;
  children: Box[];
  op: number; // its place in the graph; -1 if it is none
  ops: number[];
  edges: Edge[]; // between its children
  inlets: Map<Box, string>; // children that take something from outside, with its shape
  outlets: Map<Box, string>;
  digest: number; // the same for boxes that hold the same
}

export interface Tree {
  root: Box;
  boxOfOp: Box[];
  boxOfPath: Map<string, Box>;
}

const CONTAINERS = new Set(["", "ModuleList", "ModuleDict"]);

export function outputOf(graph: GraphData, op: number): string {
  const outputs = graph.kinds[graph.kind[op]!]![3];
  return outputs.length > 1 ? `${outputs[0]} +${outputs.length - 1}` : (outputs[0] ?? "");
}

/** Returns the island or the stretch of the host that each op runs in: what feeds it comes before. */
function stretches(graph: GraphData): string[] {
  const level: number[] = [];
  return graph.island.map((island, op) => {
    level[op] = island >= 0 ? island : Math.max(-1, ...graph.sources[op]!.map((source) => level[source]!));
    if (island >= 0) return graph.islands[island]!;
    return level[op]! < 0 ? "host, first" : `host, after ${graph.islands[level[op]!]}`;
  });
}

export function buildTree(graph: GraphData, byIsland: boolean): Tree {
  const classes = new Map(graph.modules);
  const make = (kind: Box["kind"], id: string, key: string, title: string, path: string, parent: Box | null): Box => {
    const box: Box = {
      kind, id, key, title, subtitle: "", path, parent, depth: parent ? parent.depth + 1 : 0, children: [], op: -1,
      ops: [], edges: [], inlets: new Map(), outlets: new Map(), digest: 0,
    };
    parent?.children.push(box);
    return box;
  };
  const root = make("root", "root", "root", classes.get("") || "model", "", null);
  const boxOfOp: Box[] = [];
  const boxOfPath = new Map<string, Box>([["", root]]);
  const groups = byIsland ? stretches(graph) : [];
  const calls = new Map<string, number>();

  /** Returns the modules around a path that have boxes, the outermost first. */
  const around = (path: string): string[] => {
    const found: string[] = [];
    for (let above = path; above; above = above.slice(0, Math.max(0, above.lastIndexOf(".")))) {
      // A container that is not called is no box of its own: its name goes with its members'.
      if (above === path || !CONTAINERS.has(classes.get(above) ?? "")) found.unshift(above);
    }
    return found;
  };
  // Ops follow each other as they are called: a module that is left and entered again is called again.
  let open: Box[] = [root];
  graph.names.forEach((name, op) => {
    const path = graph.modules[graph.module[op]!]![0];
    const wanted = around(path);
    let depth = 1;
    if (byIsland) {
      if (open[1]?.title !== groups[op]) {
        const found = root.children.find((box) => box.title === groups[op]);
        open = [root, found ?? make("island", `${groups[op]}/`, `island ${groups[op]}`, groups[op]!, "", root)];
      }
      depth = 2;
    }
    let kept = 0;
    while (kept < wanted.length && open[depth + kept]?.path === wanted[kept]) kept += 1;
    open.length = depth + kept;
    for (const each of wanted.slice(kept)) {
      const parent = open.at(-1)!;
      const part = each.slice(parent.path ? parent.path.length + 1 : 0);
      const prefix = byIsland ? `${groups[op]}/${each}` : each;
      const number = calls.get(prefix) ?? 0;
      calls.set(prefix, number + 1);
      const box = make("module", number ? `${prefix}@${number}` : prefix, `module ${each}`, classes.get(each) || part, each, parent);
      box.subtitle = classes.get(each) ? part : "";
      open.push(box);
      if (!boxOfPath.has(each)) boxOfPath.set(each, box);
    }
    const parent = open.at(-1)!;
    const box = make("op", `${parent.id}#${name}`, `op ${op}`, shortOp(graph.kinds[graph.kind[op]!]![0]), path, parent);
    box.op = op;
    box.ops = [op];
    boxOfOp.push(box);
  });

  finish(graph, root);
  foldRepeats(root);
  setDepths(root, 0);
  connect(graph, boxOfOp);
  return { root, boxOfOp, boxOfPath };
}

/** Adds up ops, and digests what each box holds; a module that calls one op only is shown as that op. */
function finish(graph: GraphData, root: Box): void {
  const digests = new Map<string, number>();
  const digestOf = (text: string): number => {
    const found = digests.get(text) ?? digests.size + 1;
    digests.set(text, found);
    return found;
  };
  const walk = (box: Box): void => {
    if (box.kind === "op") {
      const taken = graph.island[box.op]! >= 0 ? 1 : 0;
      box.digest = digestOf(`${graph.kind[box.op]} ${taken} ${graph.verdict[box.op]}`);
      return;
    }
    for (const child of box.children) walk(child);
    box.children = box.children.map((child) => {
      if (child.kind !== "module" || child.children.length !== 1 || child.children[0]!.kind !== "op") return child;
      const only = child.children[0]!;
      only.parent = box;
      only.subtitle = child.subtitle || child.title;
      return only;
    });
    box.ops = box.children.flatMap((child) => child.ops);
    box.digest = digestOf(`${box.kind === "module" ? box.title : ""}(${box.children.map((child) => child.digest).join()})`);
  };
  walk(root);
}

/** Puts blocks that follow each other and hold the same into one box with their number. */
function foldRepeats(box: Box): void {
  for (const child of box.children) foldRepeats(child);
  const children: Box[] = [];
  for (let place = 0; place < box.children.length; ) {
    const first = box.children[place]!;
    let end = place + 1;
    while (first.kind === "module" && end < box.children.length && box.children[end]!.digest === first.digest && box.children[end]!.kind === "module") end += 1;
    const members = box.children.slice(place, end);
    place = end;
    if (members.length === 1 || members.length === box.children.length && box.kind === "repeat") {
      children.push(...members);
      continue;
    }
    const last = members.at(-1)!;
    const repeat: Box = {
      ...first, kind: "repeat", id: `${first.id}…${members.length}`, key: `${first.key}…${members.length}`, title: `${first.title} × ${members.length}`,
      subtitle: `${first.subtitle || first.title} … ${last.subtitle || last.title}`, parent: box, children: members,
      ops: members.flatMap((member) => member.ops), edges: [], inlets: new Map(), outlets: new Map(),
    };
    for (const member of members) member.parent = repeat;
    children.push(repeat);
  }
  box.children = children;
}

function setDepths(box: Box, depth: number): void {
  box.depth = depth;
  for (const child of box.children) setDepths(child, depth + 1);
}

/** Notes each edge at the level where its ends part, and where it enters and leaves the boxes below. */
function connect(graph: GraphData, boxOfOp: Box[]): void {
  const seen = new Map<Box, Map<string, Edge>>();
  const numbers = new Map<Box, number>();
  const numberOf = (box: Box) => numbers.get(box) ?? (numbers.set(box, numbers.size), numbers.size - 1);
  graph.sources.forEach((sources, op) => {
    for (const source of sources) {
      const label = shapeOf(outputOf(graph, source));
      let [from, to] = [boxOfOp[source]!, boxOfOp[op]!];
      while (from.depth > to.depth) from = leave(from, label);
      while (to.depth > from.depth) to = enter(to, label);
      while (from.parent !== to.parent) [from, to] = [leave(from, label), enter(to, label)];
      if (from === to || !from.parent) continue;
      let edges = seen.get(from.parent);
      if (!edges) seen.set(from.parent, (edges = new Map()));
      const key = `${numberOf(from)} ${numberOf(to)}`;
      const edge = edges.get(key);
      if (edge) {
        edge.count += 1;
        if (edge.label !== label && !edge.label.endsWith("…")) edge.label += " …";
      } else {
        const made = { from, to, label, count: 1 };
        edges.set(key, made);
        from.parent.edges.push(made);
      }
    }
  });
}

function leave(box: Box, label: string): Box {
  box.parent!.outlets.set(box, label);
  return box.parent!;
}

function enter(box: Box, label: string): Box {
  box.parent!.inlets.set(box, label);
  return box.parent!;
}

/** Returns the shape of `float32[1x3x8x8]`. */
export function shapeOf(tensor: string): string {
  return /\[(.*?)\]( \+\d+)?/.exec(tensor)?.[1]?.slice(0, 40) ?? "";
}

export function ancestors(box: Box): Box[] {
  const found: Box[] = [];
  for (let each = box.parent; each; each = each.parent) found.push(each);
  return found;
}
