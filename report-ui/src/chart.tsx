// A chart that fills its place, and can be saved as a picture.
import * as Plot from "@observablehq/plot";
import { useEffect, useRef, useState } from "preact/hooks";

const INLINED = ["fill", "stroke", "stroke-width", "stroke-opacity", "fill-opacity", "font-size", "font-family", "text-anchor", "color"];

export function Chart(props: { label: string; options: (width: number) => Plot.PlotOptions; deps: unknown[] }) {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(place.current!);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!width) return;
    const figure = Plot.plot({
      width,
      style: { background: "transparent", fontSize: "12px", fontFamily: "inherit" },
      ariaLabel: props.label,
      ...props.options(width),
    });
    const drawing = figure instanceof SVGSVGElement ? figure : figure.querySelector("svg");
    drawing?.setAttribute("role", "img");
    drawing?.setAttribute("aria-label", props.label);
    // A picture is one thing to who cannot see it; its parts have no roles that names could be of.
    for (const part of figure.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
    place.current!.replaceChildren(figure);
  }, [width, ...props.deps]);

  const save = async (kind: "svg" | "png") => {
    const drawings = [...place.current!.querySelectorAll("svg")];
    const drawing = drawings.reduce((one, other) => (other.clientWidth > one.clientWidth ? other : one));
    const text = standalone(drawing);
    const name = props.label.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60);
    const picture = new Blob([text], { type: "image/svg+xml" });
    download(kind === "svg" ? picture : await rasterise(text, drawing), `${name}.${kind}`);
  };
  return (
    <figure class="chart">
      <div ref={place} />
      <figcaption>
        <span>{props.label}</span>
        <span class="gap" />
        <button type="button" aria-label={`Save as SVG: ${props.label}`} onClick={() => save("svg")}>
          SVG
        </button>
        <button type="button" aria-label={`Save as PNG: ${props.label}`} onClick={() => save("png")}>
          PNG
        </button>
      </figcaption>
    </figure>
  );
}

/** Returns a drawing as a file of its own: what the page's style gives it is written into it. */
function standalone(drawing: SVGSVGElement): string {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const [from, to] = [drawing.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((element, place) => {
    const style = getComputedStyle(element);
    for (const name of INLINED) to[place]!.setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("style", `background:${getComputedStyle(document.body).backgroundColor}`);
  return new XMLSerializer().serializeToString(copy);
}

async function rasterise(text: string, drawing: SVGSVGElement): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * drawing.clientWidth, 2 * drawing.clientHeight];
  const context = canvas.getContext("2d")!;
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(blob!), "image/png"));
}

function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
