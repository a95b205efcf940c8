// A line of code as HTML: syntax colours and marked words together, everything escaped. Above: the diff views. Below:
// highlight.js, whose nested result is read as a flat list of runs.

import type { Range } from "./wordmarks";
import { visible } from "./visible";

/** Consecutive characters of one colour. */
export interface Run {
  text: string;
  colour: string;
}

const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };
const TOKEN = /<span class="([^"]*)">|<\/span>|&(amp|lt|gt|quot|#x27);|([^<&]+)/g;

/** What highlight.js returned, as runs of each line. */
export function runsOf(html: string): Run[][] {
  const lines: Run[][] = [[]];
  const colours: string[] = [];
  const add = (text: string) => {
    const [first, ...others] = text.split("\n");
    const colour = colours[colours.length - 1] ?? "";
    const put = (piece: string) => {
      const line = lines[lines.length - 1]!;
      const last = line[line.length - 1];
      if (last?.colour === colour) last.text += piece;
      else if (piece) line.push({ text: piece, colour });
    };
    put(first!);
    for (const other of others) {
      lines.push([]);
      put(other);
    }
  };
  for (const [token, colour, entity, text] of html.matchAll(TOKEN)) {
    if (colour !== undefined) colours.push(colour);
    else if (token === "</span>") colours.pop();
    else add(entity ? ENTITIES[entity]! : text!);
  }
  return lines;
}

const escaped = (text: string) => visible(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]!);

/** The HTML of a line. Marked words are elements of their own inside the colours. */
export function painted(runs: Run[], marks: Range[]): string {
  let html = "";
  let at = 0;
  let mark = 0;
  for (const { text, colour } of runs) {
    const end = at + text.length;
    let inner = "";
    for (let from = at; from < end; ) {
      while (mark < marks.length && marks[mark]![1] <= from) mark++;
      const next = marks[mark];
      const inside = next !== undefined && next[0] <= from;
      const to = Math.min(end, inside ? next[1] : (next?.[0] ?? end));
      const piece = escaped(text.slice(from - at, to - at));
      inner += inside ? `<b>${piece}</b>` : piece;
      from = to;
    }
    html += colour ? `<span class="${colour}">${inner}</span>` : inner;
    at = end;
  }
  return html;
}

/** highlight.js names most languages by their file extensions too. */
const SPECIAL: Record<string, string> = { dockerfile: "bash", makefile: "bash", ".bashrc": "bash", ".zshrc": "bash", ".gitconfig": "ini", ".editorconfig": "ini" };

export function languageOf(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  const dot = name.lastIndexOf(".");
  return SPECIAL[name] ?? (dot < 0 ? "" : name.slice(dot + 1));
}
