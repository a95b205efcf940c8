// A conversation as rows: one for each block, tool, notice and separator. A long answer becomes many small rows, of
// which only the visible ones are drawn. Above: conversation.tsx draws them. Below: the session's state and blocks.ts.
// Rows of an unchanged turn keep their identity.

import { isBusy } from "../state/attention";
import type { State, Turn } from "../state/session";
import type { Outgoing } from "../state/outbox";
import { grow, NOTHING, shown, type Block, type Blocks } from "../text/blocks";
import type { TurnChanges } from "../wire/changes";
import type { ImagePart, NoticePart, Part, PlanPart, Prompt, ResolvedPart, TextPart, ToolPart, TurnInfo } from "../wire/types";

/** Ids of the tools waiting for the user's permission. */
export type Asked = ReadonlySet<string | null | undefined>;

/** `gone`: the row belongs to a rewound turn that is shown again. */
export type Row = { gone?: boolean } & (
  | { kind: "earlier"; key: string; count: number }
  | { kind: "message"; key: string; turn: Turn }
  | { kind: "separator"; key: string; turn: Turn }
  | { kind: "replayed"; key: string; info: TurnInfo }
  | { kind: "skipped"; key: string; turn: number; count: number }
  | { kind: "block"; key: string; block: Block; first: boolean }
  | { kind: "thinking"; key: string; part: TextPart; live: boolean }
  | { kind: "tool"; key: string; turn: number; tool: ToolPart; children: ToolPart[]; all: ToolPart[]; inside: boolean; live: boolean; asked: Asked }
  | { kind: "tools"; key: string; tools: ToolPart[]; all: ToolPart[] }
  | { kind: "plan"; key: string; part: PlanPart }
  | { kind: "image"; key: string; part: ImagePart }
  | { kind: "asked"; key: string; prompt: Prompt | null }
  | { kind: "resolved"; key: string; part: ResolvedPart; prompt: Prompt | null }
  | { kind: "notice"; key: string; part: NoticePart; turn: Turn }
  | { kind: "changes"; key: string; changes: TurnChanges }
  | { kind: "rewound"; key: string; turns: number[]; open: boolean }
  | { kind: "outgoing"; key: string; message: Outgoing }
  | { kind: "working"; key: string }
);

const FOLDED_TOOLS = 3;

/** The first row of the conversation, not counting the "earlier turns" line. */
export const firstKey = (rows: Row[]) => rows.find((row) => row.kind !== "earlier")?.key;

/** Whether rows were added before the first one, so that the scroll position must be adjusted. */
export function cameBefore(first: string | undefined, rows: Row[]): boolean {
  return first !== undefined && first !== firstKey(rows) && rows.some((row) => row.key === first);
}

/** Lower case, without accents. */
const plain = (text: string) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

function said(row: Row): string {
  if (row.kind === "message") return row.turn.message?.text ?? "";
  return row.kind === "block" ? row.block.raw : "";
}

/** The index of a turn's row with the most search terms, or of its first row. -1 if the turn has no rows. */
export function rowAt(rows: Row[], turn: number, q: string): number {
  const words = plain(q).split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  let [best, most] = [-1, -1];
  rows.forEach((row, index) => {
    if (!row.key.startsWith(`t${turn}:`)) return;
    const text = plain(said(row));
    const count = words.filter((word) => text.includes(word)).length;
    if (count > most) [best, most] = [index, count];
  });
  return best;
}

/** The index of the row that shows a tool, and what must be opened to see the tool itself. -1 if there is none. */
export function rowOfTool(rows: Row[], tool: string): { index: number; closed: string[] } {
  const inside = rows.findIndex((row) => row.kind === "tool" && row.tool.tool_id === tool);
  if (inside >= 0) return { index: inside, closed: [] };
  const all = rows.find((row) => "all" in row && row.all.some((one) => one.tool_id === tool));
  const parents = ancestorsOf(all && "all" in all ? all.all : [], tool);
  // A sub-agent's tool is inside the tool that started it, which may be inside another one.
  const outer = rows.findIndex((row) => row.kind === "tool" && parents.includes(row.tool.tool_id));
  if (outer >= 0) {
    const { tool: parent } = rows[outer] as Extract<Row, { kind: "tool" }>;
    return { index: outer, closed: parents.slice(0, parents.indexOf(parent.tool_id) + 1).map((one) => "tool:" + one) };
  }
  const folded = rows.findIndex((row) => row.kind === "tools" && row.tools.some((one) => one.tool_id === tool || parents.includes(one.tool_id)));
  return { index: folded, closed: folded < 0 ? [] : [rows[folded]!.key] };
}

/** The tools that started this one, the nearest first. */
function ancestorsOf(all: ToolPart[], tool: string): string[] {
  const parents: string[] = [];
  let parent = all.find((one) => one.tool_id === tool)?.parent_tool_id;
  while (parent && !parents.includes(parent)) {
    parents.push(parent);
    parent = all.find((one) => one.tool_id === parent)?.parent_tool_id;
  }
  return parents;
}

/** The tools of a turn and their nesting. Computed once per turn, because there may be thousands. */
interface Family {
  all: ToolPart[];
  known: Set<string>;
  children: Map<string, ToolPart[]>;
}

function family(all: ToolPart[]): Family {
  const children = new Map<string, ToolPart[]>();
  for (const tool of all) {
    if (!tool.parent_tool_id) continue;
    const siblings = children.get(tool.parent_tool_id);
    if (siblings) siblings.push(tool);
    else children.set(tool.parent_tool_id, [tool]);
  }
  return { all, known: new Set(all.map((tool) => tool.tool_id)), children };
}

export class RowMaker {
  private readonly blocks = new Map<string, { text: string; blocks: Blocks }>();
  private readonly made = new Map<number, { turn: Turn; open: Set<string>; changes: TurnChanges | undefined; rows: Row[] }>();

  rows(state: State, open: Set<string>, outbox: Outgoing[], earlier: number): Row[] {
    const rows: Row[] = earlier ? [{ kind: "earlier", key: "earlier", count: earlier }] : [];
    rows.push(...this.ofTurns(state, open));
    const shown = new Set(state.turns.slice(-3).map((turn) => turn.message?.message_id));
    for (const queued of state.queue) shown.add(queued.message_id);
    for (const message of outbox) {
      if (message.session === state.id && !shown.has(message.message_id)) rows.push({ kind: "outgoing", key: "o:" + message.message_id, message });
    }
    // The same row while the turn waits and while it runs, so that nothing moves when it starts.
    if (isBusy(state.session) && !state.prompts.length) rows.push({ kind: "working", key: "working" });
    return rows;
  }

  private ofTurns(state: State, open: Set<string>): Row[] {
    const rows: Row[] = [];
    const visible = new Set(state.visible);
    let expected: number | null = null;
    for (const turn of state.turns) {
      if (expected !== null && turn.turn > expected) this.gap(rows, expected, turn.turn, visible);
      expected = turn.turn + 1;
      if (turn.rewound) {
        const shown = open.has("rewound:" + turn.turn);
        this.fold(rows, [turn.turn], shown);
        if (!shown) continue;
      }
      if (!turn.loaded && !turn.parts.length && !turn.message) continue;
      const known = this.made.get(turn.turn);
      const changes = state.changes[turn.turn];
      if (known && known.turn === turn && known.open === open && known.changes === changes) rows.push(...known.rows);
      else {
        const made = this.ofTurn(turn, open, state);
        this.made.set(turn.turn, { turn, open, changes, rows: made });
        rows.push(...made);
      }
    }
    return rows;
  }

  /** Turn numbers are never reused, so a missing number is a rewound turn. */
  private gap(rows: Row[], from: number, to: number, visible: Set<number>): void {
    const gone: number[] = [];
    for (let turn = from; turn < to; turn++) if (!visible.has(turn)) gone.push(turn);
    if (gone.length) this.fold(rows, gone, false);
  }

  private fold(rows: Row[], turns: number[], open: boolean): void {
    const last = rows[rows.length - 1];
    if (last?.kind === "rewound" && !last.open && !open) rows[rows.length - 1] = { ...last, turns: [...last.turns, ...turns] };
    else rows.push({ kind: "rewound", key: "rewound:" + turns[0], turns, open });
  }

  private ofTurn(turn: Turn, open: Set<string>, state: State): Row[] {
    const rows: Row[] = [];
    const id = `t${turn.turn}`;
    if (turn.message) rows.push({ kind: "message", key: id + ":message", turn });
    rows.push({ kind: "separator", key: id + ":separator", turn });
    if (turn.info?.replayed && turn.info.context === "fresh") rows.push({ kind: "replayed", key: id + ":replayed", info: turn.info });
    if (turn.skipped) rows.push({ kind: "skipped", key: id + ":skipped", turn: turn.turn, count: turn.skipped });
    const live = turn.info?.stop_reason == null;
    const tools = family(turn.parts.filter((part): part is ToolPart => part.type === "tool"));
    // A tool waiting for permission is not running.
    const asked: Asked = new Set(turn.parts.map((part) => (part.type === "asked" ? state.asked[part.prompt_id]?.tool_id : undefined)));
    for (let index = 0; index < turn.parts.length; index++) {
      const part = turn.parts[index]!;
      // Count skipped parts, so that a row keeps its key when earlier parts are loaded.
      const key = `${id}:${turn.skipped + index}`;
      if (part.type === "tool") {
        const run = this.run(turn.parts, index);
        this.tools(rows, run, turn.turn, tools, open, live, asked);
        index += run.length - 1;
      } else this.part(rows, part, key, turn, state, live && index === turn.parts.length - 1);
    }
    const changes = state.changes[turn.turn];
    if (!live && changes?.file_count) rows.push({ kind: "changes", key: id + ":changes", changes });
    return turn.rewound ? rows.map((row) => ({ ...row, gone: true })) : rows;
  }

  /** The consecutive tools from here on. */
  private run(parts: Part[], from: number): ToolPart[] {
    const run: ToolPart[] = [];
    for (let index = from; index < parts.length && parts[index]!.type === "tool"; index++) run.push(parts[index] as ToolPart);
    return run;
  }

  private tools(rows: Row[], run: ToolPart[], turn: number, { all, known, children }: Family, open: Set<string>, live: boolean, asked: Asked): void {
    // A sub-agent's tools are shown inside the tool that started it.
    const top = run.filter((tool) => !tool.parent_tool_id || !known.has(tool.parent_tool_id));
    const row = (tool: ToolPart, inside: boolean): Row => ({ kind: "tool", key: "tool:" + tool.tool_id, turn, tool, children: children.get(tool.tool_id) ?? [], all, inside, live, asked });
    const finished = top.filter((tool) => tool.status === "completed" || tool.status === "failed" || !live);
    if (finished.length < FOLDED_TOOLS) {
      for (const tool of top) rows.push(row(tool, false));
      return;
    }
    const key = "tools:" + finished[0]!.tool_id;
    rows.push({ kind: "tools", key, tools: finished, all });
    if (open.has(key)) for (const tool of finished) rows.push(row(tool, true));
    for (const tool of top) if (!finished.includes(tool)) rows.push(row(tool, false));
  }

  private part(rows: Row[], part: Exclude<Part, ToolPart>, key: string, turn: Turn, state: State, growing: boolean): void {
    switch (part.type) {
      case "text":
        this.text(rows, part, key);
        break;
      case "thinking":
        rows.push({ kind: "thinking", key, part, live: growing });
        break;
      case "plan":
        rows.push({ kind: "plan", key, part });
        break;
      case "image":
        rows.push({ kind: "image", key, part });
        break;
      case "asked":
        rows.push({ kind: "asked", key: "asked:" + part.prompt_id, prompt: state.asked[part.prompt_id] ?? null });
        break;
      case "prompt_resolved":
        rows.push({ kind: "resolved", key: "asked:" + part.prompt_id, part, prompt: state.asked[part.prompt_id] ?? null });
        break;
      default:
        rows.push({ kind: "notice", key, part, turn });
    }
  }

  private text(rows: Row[], part: TextPart, key: string): void {
    const known = this.blocks.get(key);
    const grows = known && part.text.startsWith(known.text.slice(-64), Math.max(0, known.text.length - 64));
    const blocks = grow(grows ? known.blocks : NOTHING, part.text);
    this.blocks.set(key, { text: part.text, blocks });
    let number = 0;
    for (const block of shown(blocks)) rows.push({ kind: "block", key: `${key}.${number}`, block, first: number++ === 0 });
  }
}
