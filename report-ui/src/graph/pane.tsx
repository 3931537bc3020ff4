// One graph, drawn: folds and unfolds, zooms and pans, and is walked with the arrow keys.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { shown } from "../format";
import type { Colouring } from "./colours";
import { HEADER, Layouts, type Line } from "./layout";
import type { Box, Tree } from "./tree";

interface View {
  x: number;
  y: number;
  k: number;
}
interface Drawn {
  box: Box;
  x: number; // of the upper left corner
  y: number;
  width: number;
  height: number;
  open: boolean;
}
interface DrawnLine extends Line {
  x: number;
  y: number;
}
const MOST_DRAWN = 2500;

export interface PaneProps {
  label: string;
  tree: Tree;
  colouring: Colouring;
  unfolded: ReadonlySet<string>;
  selected: Box | null;
  found: ReadonlySet<Box>;
  onToggle: (box: Box) => void;
  onSelect: (box: Box) => void;
}

export function Pane(props: PaneProps) {
  const { tree, unfolded, selected } = props;
  const frame = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [view, setView] = useState<View | null>(null);
  const moved = useRef(false);
  const layouts = useRef<{ tree: Tree; layouts: Layouts } | null>(null);
  const current = useMemo(() => {
    const base = layouts.current?.tree === tree ? layouts.current.layouts : new Layouts(unfolded);
    const next = base.with(unfolded);
    layouts.current = { tree, layouts: next };
    return next;
  }, [tree, unfolded]);
  const all = useMemo(() => placeAll(tree.root, current), [tree, current]);
  const places = useMemo(() => new Map(all.boxes.map((drawn) => [drawn.box, drawn])), [all]);

  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => {
      const { width, height } = entry!.contentRect;
      setSize({ width, height });
    });
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);

  const fit = () => {
    if (!size.width) return;
    const k = Math.min(1.1, (size.width - 24) / all.width, Math.max((size.height - 24) / all.height, 0.8));
    setView({ k, x: (size.width - all.width * k) / 2, y: all.height * k < size.height ? (size.height - all.height * k) / 2 : 12 });
  };
  useEffect(() => {
    if (!moved.current) fit();
  }, [size.width, size.height, all]);
  useEffect(() => {
    moved.current = false;
    fit();
  }, [tree]);

  // What was unfolded or folded stays where it is on the screen.
  const anchor = useRef<{ box: Box; x: number; y: number } | null>(null);
  useLayoutEffect(() => {
    const kept = anchor.current;
    anchor.current = null;
    const place = kept && places.get(kept.box);
    if (kept && place && view) setView({ ...view, x: kept.x - place.x * view.k, y: kept.y - place.y * view.k });
  }, [places]);
  useEffect(() => {
    const place = selected && places.get(selected);
    if (!place || !view || !size.width) return;
    const [left, top] = [place.x * view.k + view.x, place.y * view.k + view.y];
    const inside = left >= 0 && top >= 0 && left + Math.min(place.width, 80) * view.k <= size.width && top + HEADER * view.k <= size.height;
    if (inside && view.k > 0.3) return;
    moved.current = true;
    const k = Math.max(view.k, 0.8);
    const height = Math.min(place.height * k, size.height / 2);
    setView({ k, x: size.width / 2 - (place.x + place.width / 2) * k, y: size.height / 2 - place.y * k - height / 2 });
  }, [selected, places, size.width > 0, view === null]);

  const toggle = (box: Box) => {
    const place = places.get(box);
    if (place && view) anchor.current = { box, x: place.x * view.k + view.x, y: place.y * view.k + view.y };
    moved.current = true;
    props.onToggle(box);
  };
  const zoom = (factor: number, x = size.width / 2, y = size.height / 2) => {
    moved.current = true;
    setView((old) => {
      if (!old) return old;
      const k = Math.min(4, Math.max(0.02, old.k * factor));
      return { k, x: x - ((x - old.x) * k) / old.k, y: y - ((y - old.y) * k) / old.k };
    });
  };

  useEffect(() => {
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const around = frame.current!.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX - around.left, event.clientY - around.top);
    };
    const element = frame.current!;
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, [size]);

  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const dragged = useRef(0);
  const onPointerDown = (event: PointerEvent) => {
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    dragged.current = 0;
  };
  const onPointerMove = (event: PointerEvent) => {
    const last = pointers.current.get(event.pointerId);
    if (!last) return;
    const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
    const others = [...pointers.current].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    dragged.current += Math.abs(dx) + Math.abs(dy);
    if (dragged.current < 4) return;
    moved.current = true;
    if (others[0]) {
      const [now, before] = [Math.hypot(event.clientX - others[0].x, event.clientY - others[0].y), Math.hypot(last.x - others[0].x, last.y - others[0].y)];
      const around = frame.current!.getBoundingClientRect();
      zoom(now / (before || 1), others[0].x - around.left, others[0].y - around.top);
    } else {
      frame.current!.setPointerCapture(event.pointerId);
      setView((old) => old && { ...old, x: old.x + dx, y: old.y + dy });
    }
  };
  const onPointerUp = (event: PointerEvent) => pointers.current.delete(event.pointerId);

  const active = selected && places.has(selected) ? selected : (all.boxes[1]?.box ?? null);
  const visible = useMemo(() => (view ? inView(all, view, size, active) : { boxes: [], lines: [] }), [all, view, size, active]);
  const focus = (box: Box | undefined) => {
    if (!box) return;
    props.onSelect(box);
    wantsFocus.current = true;
  };
  const wantsFocus = useRef(false);
  useLayoutEffect(() => {
    if (!wantsFocus.current) return;
    const item = frame.current!.querySelector<SVGElement>('[tabindex="0"][role="treeitem"]');
    if (item) {
      item.focus({ preventScroll: true });
      wantsFocus.current = false;
    }
  });
  const onKeyDown = (event: KeyboardEvent) => {
    if (!active) return;
    const order = all.boxes.slice(1).map((drawn) => drawn.box);
    const place = order.indexOf(active);
    const open = places.get(active)?.open ?? false;
    const keys: Record<string, () => void> = {
      ArrowDown: () => focus(order[place + 1]),
      ArrowUp: () => focus(order[place - 1]),
      ArrowRight: () => (active.children.length && !open ? toggle(active) : focus(active.children[0])),
      ArrowLeft: () => (open ? toggle(active) : focus(active.parent?.parent ? active.parent : undefined)),
      Enter: () => (active.children.length ? toggle(active) : props.onSelect(active)),
      " ": () => (active.children.length ? toggle(active) : props.onSelect(active)),
      Home: () => focus(order[0]),
      End: () => focus(order.at(-1)),
      "+": () => zoom(1.3),
      "-": () => zoom(1 / 1.3),
      "0": fit,
    };
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    wantsFocus.current = true;
    action();
  };

  return (
    <div class="pane" ref={frame} onPointerDown={onPointerDown} onPointerMove={onPointerMove} onPointerUp={onPointerUp} onPointerCancel={onPointerUp}>
      <svg class="drawing" role="tree" aria-label={props.label} onKeyDown={onKeyDown}>
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0,0.6 L8,4 L0,7.4 z" />
          </marker>
          <pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="7" height="7" class="hatch-ground" />
            <rect width="2.5" height="7" class="hatch-line" />
          </pattern>
        </defs>
        {view && (
          <g transform={`translate(${view.x} ${view.y}) scale(${view.k})`}>
            {visible.boxes.filter((drawn) => drawn.open).map((drawn) => node(drawn, props, active, dragged, toggle, view.k))}
            {visible.lines.map((line) => edge(line, view.k))}
            {visible.boxes.filter((drawn) => !drawn.open).map((drawn) => node(drawn, props, active, dragged, toggle, view.k))}
          </g>
        )}
      </svg>
      <div class="zoom">
        <button type="button" aria-label="Zoom in" onClick={() => zoom(1.3)}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => zoom(1 / 1.3)}>
          −
        </button>
        <button
          type="button"
          onClick={() => {
            moved.current = false;
            fit();
          }}
        >
          Fit
        </button>
      </div>
    </div>
  );
}

interface All {
  boxes: Drawn[];
  lines: DrawnLine[];
  width: number;
  height: number;
}

function placeAll(root: Box, layouts: Layouts): All {
  const all: All = { boxes: [], lines: [], ...layouts.sizeOf(root) };
  const place = (box: Box, x: number, y: number) => {
    const { width, height } = layouts.sizeOf(box);
    const open = layouts.isOpen(box);
    all.boxes.push({ box, x, y, width, height, open });
    if (!open) return;
    const layout = layouts.layoutOf(box);
    for (const line of layout.lines) all.lines.push({ ...line, x, y });
    for (const child of box.children) {
      const centre = layout.places.get(child)!;
      const inner = layouts.sizeOf(child);
      place(child, x + centre.x - inner.width / 2, y + centre.y - inner.height / 2);
    }
  };
  place(root, 0, 0);
  return all;
}

/** Returns what is on the screen and large enough to be seen; and the active box always: it holds the focus, which keys need. */
function inView(all: All, view: View, size: { width: number; height: number }, active: Box | null): { boxes: Drawn[]; lines: DrawnLine[] } {
  const [left, top] = [-view.x / view.k - 40, -view.y / view.k - 40];
  const [right, bottom] = [left + size.width / view.k + 80, top + size.height / view.k + 80];
  const boxes = all.boxes.filter(
    (each) => each.box.kind !== "root" && each.x < right && each.x + each.width > left && each.y < bottom && each.y + each.height > top && each.height * view.k > 2,
  );
  const lines = all.lines.filter((line) => {
    if (view.k < 0.08) return false;
    const ys = line.points.map((point) => point.y + line.y);
    const xs = line.points.map((point) => point.x + line.x);
    return Math.min(...ys) < bottom && Math.max(...ys) > top && Math.min(...xs) < right && Math.max(...xs) > left;
  });
  boxes.length = Math.min(boxes.length, MOST_DRAWN);
  const kept = all.boxes.find((each) => each.box === active);
  if (kept && !boxes.includes(kept)) boxes.push(kept);
  lines.length = Math.min(lines.length, MOST_DRAWN);
  return { boxes, lines };
}

function edge(line: DrawnLine, scale: number) {
  const path = line.points.map((point, place) => `${place ? "L" : "M"}${(point.x + line.x).toFixed(1)},${(point.y + line.y).toFixed(1)}`).join("");
  return (
    <g class={line.faint ? "edge faint" : "edge"} aria-hidden="true">
      <path d={path} marker-end={scale > 0.25 ? "url(#arrow)" : undefined} />
      {line.at && line.label && scale > 0.45 && (
        <text x={line.at.x + line.x} y={line.at.y + line.y + 4}>
          {shown(line.label, 40)}
        </text>
      )}
    </g>
  );
}

function cut(text: string, width: number, letter: number): string {
  const most = Math.max(3, Math.floor(width / letter));
  const visible = shown(text, 200);
  return visible.length > most ? `${visible.slice(0, most - 1)}…` : visible;
}

function node(
  drawn: Drawn,
  props: PaneProps,
  active: Box | null,
  dragged: { current: number },
  toggle: (box: Box) => void,
  scale: number,
) {
  const { box, x, y, width, height, open } = drawn;
  const paint = props.colouring.paint(box);
  const states = [box.kind, paint.style, open ? "open" : "", box === props.selected ? "selected" : "", props.found.has(box) ? "found" : ""];
  const folds = box.children.length > 0;
  const signWidth = paint.sign ? 7 * paint.sign.length + 8 : 0;
  const inner = width - 20 - (folds ? 16 : 0);
  return (
    <g
      key={box.id}
      role="treeitem"
      class={`node ${states.filter(Boolean).join(" ")}`}
      style={paint.heat ? { "--heat": `${Math.round(85 * paint.heat)}%` } : undefined}
      transform={`translate(${x.toFixed(1)} ${y.toFixed(1)})`}
      tabindex={box === active ? 0 : -1}
      aria-level={box.depth}
      aria-selected={box === props.selected}
      aria-expanded={folds ? open : undefined}
      aria-label={shown([box.title, box.subtitle, paint.text].filter(Boolean).join(", "), 200)}
      data-id={box.id.slice(0, 300)}
      onClick={(event) => {
        event.stopPropagation();
        if (dragged.current > 3) return;
        props.onSelect(box);
      }}
      onDblClick={() => folds && toggle(box)}
    >
      <rect width={width} height={height} rx={open ? 10 : 7} />
      {paint.heat > 0 && !open && <rect class="heat-bar" x={1} y={height - 5} width={Math.max(2, (width - 2) * paint.heat)} height={4} rx={2} />}
      {scale > 0.22 && (
        <>
          <text class="title" x={10 + (folds ? 16 : 0)} y={box.subtitle && !open ? 17 : open ? 22 : height / 2 + 4}>
            {cut(open && box.subtitle ? `${box.subtitle}: ${box.title}` : box.title, inner - signWidth, 7.2)}
          </text>
          {box.subtitle && !open && (
            <text class="subtitle" x={10 + (folds ? 16 : 0)} y={31}>
              {cut(box.subtitle, inner, 6.2)}
            </text>
          )}
          {paint.sign && (
            <text class="sign" x={width - 8} y={open ? 22 : 17}>
              {paint.sign}
            </text>
          )}
        </>
      )}
      {folds && (
        <g
          class="fold"
          aria-hidden="true"
          onClick={(event) => {
            event.stopPropagation();
            if (dragged.current > 3) return;
            toggle(box);
            props.onSelect(box);
          }}
        >
          <rect x={0} y={0} width={26} height={open ? HEADER : height} />
          <path d={open ? "M8,13 h11 l-5.5,7 z" : `M9,${height / 2 - 6} v12 l7,-6 z`} />
        </g>
      )}
    </g>
  );
}
