// Shows the report: reads what the page holds, and renders it.
import { render } from "preact";
import { App } from "./app";
import { loadBlock, type Data } from "./data";
import "./page.css";

const place = document.getElementById("page")!;
loadBlock<Data>(0).then(
  (data) => {
    place.replaceChildren();
    render(<App data={data} />, place);
  },
  (error: unknown) => {
    place.textContent = `The data of this page cannot be read: ${String(error)}`;
  },
);
