// Where in the page one is, as the address's fragment: a link opens the page there.
import { useEffect, useState } from "preact/hooks";

export interface Route {
  section: string;
  [parameter: string]: string;
}

export function parseRoute(hash: string): Route {
  const [section, query] = hash.replace(/^#\/?/, "").split("?", 2);
  return { ...Object.fromEntries(new URLSearchParams(query ?? "")), section: section ?? "" };
}

export function linkTo(section: string, parameters: Record<string, string> = {}): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${section}${query ? `?${query}` : ""}`;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
