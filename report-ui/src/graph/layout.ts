// Where boxes and edges are drawn. Each unfolded box is laid out by itself, so that unfolding one costs little.
import dagre from "@dagrejs/dagre";
import type { Box } from "./tree";

export interface Placed {
  x: number; // of the centre, within the box around it
  y: number;
}
export interface Line {
  points: { x: number; y: number }[];
  label: string;
  at: { x: number; y: number } | null;
  faint: boolean;
}
export interface Layout {
  width: number;
  height: number;
  places: Map<Box, Placed>;
  lines: Line[];
}

export const HEADER = 34;
const [PADDING, OP_HEIGHT, LEAST_WIDTH, MOST_WIDTH] = [14, 40, 104, 320];
const MOST_FOR_DAGRE = 90; // beyond that its time grows faster than anyone waits
const MOST_WITH_LABELS = 40;

/** Lays out what is unfolded; what did not change since is taken from the last time. */
export class Layouts {
  private known = new Map<Box, { layout: Layout; state: string }>();

  constructor(private unfolded: ReadonlySet<string>) {}

  with(unfolded: ReadonlySet<string>): Layouts {
    const next = new Layouts(unfolded);
    next.known = this.known;
    return next;
  }

  isOpen(box: Box): boolean {
    return box.children.length > 0 && (box.kind === "root" || this.unfolded.has(box.key));
  }

  sizeOf(box: Box): { width: number; height: number } {
    if (!this.isOpen(box)) return folded(box);
    const inner = this.layoutOf(box);
    return { width: inner.width, height: inner.height };
  }

  layoutOf(box: Box): Layout {
    const state = this.stateOf(box);
    const found = this.known.get(box);
    if (found?.state === state) return found.layout;
    const layout = box.children.length > MOST_FOR_DAGRE ? this.inRows(box) : this.byDagre(box);
    this.known.set(box, { layout, state });
    return layout;
  }

  private stateOf(box: Box): string {
    let state = "";
    box.children.forEach((child, place) => {
      if (this.isOpen(child)) state += `${place}(${this.stateOf(child)})`;
    });
    return state;
  }

  private byDagre(box: Box): Layout {
    const graph = new dagre.graphlib.Graph({ multigraph: true });
    graph.setGraph({ rankdir: "TB", nodesep: 22, edgesep: 12, ranksep: 26, marginx: 0, marginy: 0 });
    graph.setDefaultEdgeLabel(() => ({}));
    const names = new Map(box.children.map((child, place) => [child, String(place)]));
    for (const [child, name] of names) graph.setNode(name, { ...this.sizeOf(child) });
    const labelled = box.children.length <= MOST_WITH_LABELS;
    box.edges.forEach((edge, place) => {
      const label = labelled && edge.label ? { width: 7 * edge.label.length, height: 14, labelpos: "c" } : {};
      graph.setEdge(names.get(edge.from)!, names.get(edge.to)!, label, `e${place}`);
    });
    const doors: ["in" | "out", Map<Box, string>][] = box.kind === "root" ? [] : [["in", box.inlets], ["out", box.outlets]];
    for (const [door, children] of doors) {
      if (!children.size) continue;
      graph.setNode(door, { width: 1, height: 1 });
      for (const child of children.keys()) {
        const name = names.get(child)!;
        if (door === "in") graph.setEdge(door, name, { weight: 0 }, "door");
        else graph.setEdge(name, door, { weight: 0 }, "door");
      }
    }
    dagre.layout(graph);
    const header = box.kind === "root" ? PADDING : HEADER;
    const places = new Map<Box, Placed>();
    for (const [child, name] of names) {
      const { x, y } = graph.node(name);
      places.set(child, { x: x + PADDING, y: y + header });
    }
    const lines = graph.edges().map((each): Line => {
      const made = graph.edge(each) as { points: { x: number; y: number }[]; x?: number; y?: number };
      const edge = each.name!.startsWith("e") ? box.edges[Number(each.name!.slice(1))] : undefined;
      const at = edge && made.x !== undefined && made.y !== undefined ? { x: made.x + PADDING, y: made.y + header } : null;
      return {
        points: made.points.map(({ x, y }) => ({ x: x + PADDING, y: y + header })),
        label: edge && labelled ? edge.label : "",
        at: labelled ? at : null,
        faint: !edge,
      };
    });
    const size = graph.graph() as { width?: number; height?: number };
    const width = Math.max((size.width ?? 0) + 2 * PADDING, folded(box).width);
    const shift = (width - (size.width ?? 0)) / 2 - PADDING;
    for (const place of places.values()) place.x += shift;
    for (const line of lines) {
      line.points = line.points.map(({ x, y }) => ({ x: x + shift, y }));
      if (line.at) line.at = { x: line.at.x + shift, y: line.at.y };
    }
    return { width, height: (size.height ?? 0) + header + PADDING, places, lines };
  }

  /** Lays out many children by how far they are from the start: in time that grows with their number alone. */
  private inRows(box: Box): Layout {
    const rank = new Map<Box, number>();
    const incoming = new Map<Box, Box[]>();
    for (const edge of box.edges) incoming.set(edge.to, [...(incoming.get(edge.to) ?? []), edge.from]);
    for (const child of box.children) {
      const before = (incoming.get(child) ?? []).map((from) => rank.get(from) ?? -1);
      rank.set(child, before.length ? Math.max(...before) + 1 : 0);
    }
    const rows: Box[][] = [];
    for (const child of box.children) (rows[rank.get(child)!] ??= []).push(child);
    const header = box.kind === "root" ? PADDING : HEADER;
    const places = new Map<Box, Placed>();
    let [y, width] = [header, 0];
    const widths = rows.map((row) => row.reduce((sum, child) => sum + this.sizeOf(child).width + 22, -22));
    width = Math.max(...widths, LEAST_WIDTH) + 2 * PADDING;
    rows.forEach((row, place) => {
      const height = Math.max(...row.map((child) => this.sizeOf(child).height));
      let x = (width - widths[place]!) / 2;
      for (const child of row) {
        const size = this.sizeOf(child);
        places.set(child, { x: x + size.width / 2, y: y + height / 2 });
        x += size.width + 22;
      }
      y += height + 30;
    });
    const lines = box.edges.map((edge): Line => {
      const [from, to] = [places.get(edge.from)!, places.get(edge.to)!];
      const [start, end] = [from.y + this.sizeOf(edge.from).height / 2, to.y - this.sizeOf(edge.to).height / 2];
      return { points: [{ x: from.x, y: start }, { x: to.x, y: end }], label: "", at: null, faint: false };
    });
    return { width, height: y - 30 + PADDING, places, lines };
  }
}

export function folded(box: Box): { width: number; height: number } {
  const letters = Math.max(box.title.length + 7, box.subtitle.length * 0.9);
  return { width: Math.min(MOST_WIDTH, Math.max(LEAST_WIDTH, 26 + 7 * letters)), height: OP_HEIGHT };
}
