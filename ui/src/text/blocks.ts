// Splits growing text into markdown blocks: paragraphs, lists, pieces of code. Above: the conversation shows one row
// per block, so only visible rows cost anything. Below: marked's lexer. When the text grows, only its end is parsed
// again; everything before the last block is settled. Blocks that could grow without bound (paragraphs, lists, code)
// are cut into pieces. Blocks are slices of the original text, so nothing is lost or duplicated where the lexer skips
// something.

import { marked, type Token, type Tokens } from "marked";

const LONG_PARAGRAPH_CHARS = 3000;
const LONG_LIST_CHARS = 4000;
const CODE_PIECE_LINES = 80;

export interface Block {
  kind: "markdown" | "code" | "links";
  raw: string;
  /** The language of a code block. */
  lang?: string;
  /** Whether this is the first or last piece of a block that was cut. */
  first?: boolean;
  last?: boolean;
  /** On the first piece of a cut code block: all of its pieces. */
  pieces?: Block[];
  /** Link definitions from other blocks that this block may use. */
  links?: string;
}

interface Fence {
  lang: string;
  mark: string;
}

export interface Blocks {
  settled: Block[];
  tail: Block[];
  /** How much of the text the settled blocks cover. */
  offset: number;
  fence: Fence | null;
  length: number;
}

export const NOTHING: Blocks = { settled: [], tail: [], offset: 0, fence: null, length: 0 };

/** The blocks to show. Link definitions are not shown; they are attached to the blocks that use them. */
export function shown(blocks: Blocks): Block[] {
  const all = [...blocks.settled, ...blocks.tail];
  const links = all.filter((block) => block.kind === "links").map((block) => block.raw.trim()).join("\n");
  const texts = all.filter((block) => block.kind !== "links");
  return texts.map((block, index) => {
    if (links && block.kind === "markdown" && /\[[^\]]+\]/.test(block.raw)) return { ...block, links };
    if (block.first && !block.last) return { ...block, pieces: texts.slice(index, texts.findIndex((one, at) => at > index && one.last !== false) + 1) };
    return block;
  });
}

/** The whole code block that starts with this piece. */
export const codeOf = (block: Block) => (block.pieces?.length ? block.pieces.map((piece) => piece.raw).join("\n") : block.raw);

/** The blocks of `text`, which extends the text that `before` was made from. */
export function grow(before: Blocks, text: string): Blocks {
  if (text.includes("\r")) text = text.replace(/\r\n?/g, "\n");
  if (text.length === before.length) return before;
  if (text.length < before.length) before = NOTHING;
  let { offset, fence } = before;
  const settled = before.settled.slice();
  let tail: Block[] = [];
  for (;;) {
    const step = fence ? inFence(text.slice(offset), fence) : inProse(text.slice(offset));
    settled.push(...step.settled);
    offset += step.used;
    tail = step.tail;
    const going = step.used > 0 && step.again;
    fence = step.fence;
    if (!going) break;
  }
  return { settled: settled.length === before.settled.length ? before.settled : settled, tail, offset, fence, length: text.length };
}

interface Step {
  settled: Block[];
  tail: Block[];
  used: number;
  fence: Fence | null;
  again: boolean;
}

const stay = (tail: Block[]): Step => ({ settled: [], tail, used: 0, fence: null, again: false });

// The info string after a backtick fence can't contain backticks; after tildes it can contain anything.
const OPENING = /^ {0,3}(`{3,}(?=[^`\n]*\n)|~{3,})[ \t]*([^\n]*)\n/;

/** Inside a code block: settle whole pieces until the closing fence arrives. */
function inFence(text: string, fence: Fence): Step {
  const closing = new RegExp(`^ {0,3}${fence.mark[0] === "`" ? "`" : "~"}{${fence.mark.length},}[ \\t]*$`);
  const lines = text.split("\n");
  const end = lines.findIndex((line) => closing.test(line));
  const settled: Block[] = [];
  let used = 0;
  let from = 0;
  const bound = end < 0 ? lines.length - 1 : end;
  while (bound - from > CODE_PIECE_LINES) {
    const piece = lines.slice(from, from + CODE_PIECE_LINES).join("\n");
    settled.push({ kind: "code", raw: piece, lang: fence.lang, first: false, last: false });
    used += piece.length + 1;
    from += CODE_PIECE_LINES;
  }
  const rest = lines.slice(from, end < 0 ? undefined : end).join("\n");
  const block: Block = { kind: "code", raw: rest, lang: fence.lang, first: false, last: true };
  if (end < 0) return { settled, tail: [block], used, fence, again: false };
  settled.push(block);
  const closed = lines.slice(from, end + 1).join("\n").length + 1;
  return { settled, tail: [], used: Math.min(text.length, used + closed), fence: null, again: true };
}

function inProse(text: string): Step {
  if (!text) return stay([]);
  const opening = OPENING.exec(text);
  if (opening) return code(text, opening);
  const tokens = marked.lexer(text) as Token[];
  const settled: Block[] = [];
  let used = 0;
  // The last block may still grow, even after blank lines: a list can continue.
  let end = tokens.length - 1;
  while (end > 0 && !tokens[end]!.raw.trim()) end--;
  for (let index = 0; index <= end; index++) {
    const token = tokens[index]!;
    const from = text.indexOf(token.raw, used);
    if (from < 0) return { settled, tail: [{ kind: "markdown", raw: text.slice(used) }], used, fence: null, again: false };
    // Code blocks are cut into pieces separately.
    if (isFenced(token) && from > 0 && OPENING.test(text.slice(from))) return { settled: [...settled, ...left(text.slice(used, from))], tail: [], used: from, fence: null, again: true };
    if (index === end) {
      const cut = from === used ? cutLong(token) : null;
      if (cut) return { settled: [...settled, cut], tail: [], used: used + cut.raw.length, fence: null, again: true };
      return { settled, tail: blockOf(token, text.slice(used)), used, fence: null, again: false };
    }
    settled.push(...blockOf(token, text.slice(used, from + token.raw.length)));
    used = from + token.raw.length;
  }
  return { settled, tail: [], used, fence: null, again: false };
}

const isFenced = (token: Token) => token.type === "code" && (token as Tokens.Code).codeBlockStyle !== "indented";

/** Text the lexer skipped, such as a second definition of the same link. */
const left = (raw: string): Block[] => (raw.trim() ? [{ kind: "markdown", raw }] : []);

function code(text: string, opening: RegExpExecArray): Step {
  const fence: Fence = { lang: (opening[2] ?? "").trim().split(/\s/)[0] ?? "", mark: opening[1]! };
  const inner = inFence(text.slice(opening[0].length), fence);
  const all = [...inner.settled, ...inner.tail];
  if (all[0]) all[0] = { ...all[0], first: true };
  if (inner.again) return { settled: all, tail: [], used: opening[0].length + inner.used, fence: null, again: true };
  if (inner.used === 0) return stay(all);
  return { settled: all.slice(0, -1), tail: all.slice(-1), used: opening[0].length + inner.used, fence, again: false };
}

function blockOf(token: Token, raw: string): Block[] {
  if (!raw.trim()) return [];
  return [{ kind: token.type === "def" ? "links" : "markdown", raw }];
}

/** The first piece of a long block, or null if it is not long. */
function cutLong(token: Token): Block | null {
  if (token.type === "paragraph" && token.raw.length > LONG_PARAGRAPH_CHARS * 1.5) {
    const line = token.raw.lastIndexOf("\n", LONG_PARAGRAPH_CHARS);
    const at = line > LONG_PARAGRAPH_CHARS / 2 ? line : token.raw.lastIndexOf(" ", LONG_PARAGRAPH_CHARS);
    return { kind: "markdown", raw: token.raw.slice(0, (at > 0 ? at : LONG_PARAGRAPH_CHARS) + 1), last: false };
  }
  if (token.type === "list" && token.raw.length > LONG_LIST_CHARS) {
    const items = (token as Tokens.List).items;
    let raw = "";
    for (const item of items.slice(0, -1)) {
      if (raw.length > LONG_LIST_CHARS / 2) break;
      raw += item.raw;
    }
    return raw && token.raw.startsWith(raw) ? { kind: "markdown", raw, last: false } : null;
  }
  return null;
}
