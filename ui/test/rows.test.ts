// Rows of a conversation: which are folded, which are nested, and which stay the same object when nothing changes.

import { describe, expect, it } from "vitest";
import { empty, type State, type Turn } from "../src/state/session";
import { cameBefore, firstKey, rowAt, RowMaker, rowOfTool, type Row } from "../src/views/rows";
import type { Part, Prompt, Session, ToolPart, TurnInfo } from "../src/wire/types";

const tool = (id: string, parent: string | null = null, status: ToolPart["status"] = "completed"): ToolPart => ({ type: "tool", tool_id: id, name: "Read", kind: "read", title: id, status, input: null, parent_tool_id: parent });

function turn(number: number, parts: Part[], ended = true): Turn {
  const info = { turn: number, stop_reason: ended ? "end_turn" : null } as TurnInfo;
  return { turn: number, info, message: { message_id: `m${number}`, text: "hello", at: "" }, parts, loaded: true, skipped: 0, rewound: false, upTo: 0 };
}

const state = (turns: Turn[], visible = turns.map((one) => one.turn)): State => ({ ...empty("s"), turns, visible });
const kinds = (rows: Row[]) => rows.map((row) => row.kind);
const rowsOf = (value: State, open = new Set<string>(), maker = new RowMaker()) => maker.rows(value, open, [], 0);

describe("rows", () => {
  it("fold consecutive finished tools, and show them when expanded", () => {
    const value = state([turn(1, [tool("a"), tool("b"), tool("c"), { type: "text", block: 0, text: "done" }])]);
    expect(kinds(rowsOf(value))).toEqual(["message", "separator", "tools", "block"]);
    expect(kinds(rowsOf(value, new Set(["tools:a"])))).toEqual(["message", "separator", "tools", "tool", "tool", "tool", "block"]);
  });

  it("don't fold a few tools, and keep a running tool outside the fold", () => {
    expect(kinds(rowsOf(state([turn(1, [tool("a"), tool("b")])])))).toEqual(["message", "separator", "tool", "tool"]);
    const running = state([turn(1, [tool("a"), tool("b"), tool("c"), tool("d", null, "in_progress")], false)]);
    expect(kinds(rowsOf(running))).toEqual(["message", "separator", "tools", "tool"]);
  });

  it("show how many earlier steps there are, and keep their keys when these are loaded", () => {
    const text = (number: number): Part => ({ type: "text", block: number, text: `step ${number}` });
    const cut = rowsOf(state([{ ...turn(1, [text(2), text(3)]), loaded: false, skipped: 2 }]));
    expect(kinds(cut)).toEqual(["message", "separator", "skipped", "block", "block"]);
    expect(cut[2]).toMatchObject({ turn: 1, count: 2 });
    const whole = rowsOf(state([turn(1, [text(0), text(1), text(2), text(3)])]));
    expect(whole.slice(-2).map((row) => row.key)).toEqual(cut.slice(-2).map((row) => row.key));
    expect(kinds(whole)).not.toContain("skipped");
  });

  it("put a sub-agent's tools inside the tool that started it", () => {
    const rows = rowsOf(state([turn(1, [tool("task"), tool("x", "task"), tool("y", "task")])]));
    const found = rows.filter((row) => row.kind === "tool");
    expect(found.length).toBe(1);
    expect(found[0]!.children.map((one) => one.tool_id)).toEqual(["x", "y"]);
  });

  it("don't show a tool as running while it waits for the user", () => {
    const parts: Part[] = [tool("a", null, "in_progress"), tool("b", null, "in_progress"), { type: "asked", prompt_id: "p" }];
    const asked = { p: { prompt_id: "p", tool_id: "b" } as Prompt };
    const found = rowsOf({ ...state([turn(1, parts, false)]), asked }).filter((row) => row.kind === "tool");
    expect(found.map((row) => row.live && row.asked.has(row.tool.tool_id))).toEqual([false, true]);
  });

  it("fold rewound turns, loaded or not", () => {
    const gone = { ...turn(2, []), rewound: true };
    expect(kinds(rowsOf(state([turn(1, []), gone, turn(3, [])], [1, 3])))).toEqual(["message", "separator", "rewound", "message", "separator"]);
    const opened = rowsOf(state([turn(1, []), gone, turn(3, [])], [1, 3]), new Set(["rewound:2"]));
    expect(kinds(opened)).toEqual(["message", "separator", "rewound", "message", "separator", "message", "separator"]);
    expect(opened.map((row) => !!row.gone)).toEqual([false, false, false, true, true, false, false]);
    const gap = rowsOf(state([turn(1, []), turn(4, [])]));
    expect(gap.find((row) => row.kind === "rewound")!.turns).toEqual([2, 3]);
  });

  it("are the same objects for unchanged turns", () => {
    const maker = new RowMaker();
    const open = new Set<string>();
    const first = turn(1, [{ type: "text", block: 0, text: "one" }]);
    const before = rowsOf(state([first, turn(2, [])]), open, maker);
    const after = rowsOf(state([first, turn(2, [{ type: "text", block: 0, text: "two" }])]), open, maker);
    expect(after.slice(0, 3)).toEqual(before.slice(0, 3));
    expect(after[2]).toBe(before[2]);
  });

  it("omit an outgoing message that the log already has", () => {
    const message = { session: "s", message_id: "m1", text: "hello", sent_at: 0 };
    expect(kinds(new RowMaker().rows(state([turn(1, [])]), new Set(), [message], 0))).toEqual(["message", "separator"]);
    expect(kinds(new RowMaker().rows(state([]), new Set(), [message], 0))).toEqual(["outgoing"]);
  });

  it("are recognized as added before others, but not because turns are missing", () => {
    const later = state([turn(31, []), turn(32, [])]);
    const rows = new RowMaker().rows(later, new Set(), [], 30);
    expect(rows[0]!.kind).toBe("earlier");
    const grown = new RowMaker().rows(state([...later.turns, turn(33, [])]), new Set(), [], 30);
    expect(cameBefore(firstKey(rows), grown)).toBe(false);
    const loaded = new RowMaker().rows(state([turn(30, []), ...later.turns]), new Set(), [], 29);
    expect(cameBefore(firstKey(rows), loaded)).toBe(true);
    expect(cameBefore(undefined, loaded)).toBe(false);
  });

  it("end with the same row while a turn waits and while it runs", () => {
    const at = (word: Session["state"]) => rowsOf({ ...state([turn(1, [], false)]), session: { state: word } as Session }).map((row) => row.key);
    expect(at("accepted")).toEqual(["t1:message", "t1:separator", "working"]);
    expect(at("processing")).toEqual(at("accepted"));
    expect(at("idle")).toEqual(["t1:message", "t1:separator"]);
  });

  it("show a tool as running only in a running turn", () => {
    const rows = rowsOf(state([turn(1, [tool("old", null, "in_progress")]), turn(2, [tool("new", null, "in_progress")], false)]));
    expect(rows.filter((row) => row.kind === "tool").map((row) => row.live)).toEqual([false, true]);
  });

  it("are found by turn, and within a turn by the search terms", () => {
    const rows = rowsOf(state([turn(1, [{ type: "text", block: 0, text: "The café is closed.\n\nThe garden is open." }]), turn(12, [{ type: "text", block: 0, text: "garden" }])]));
    const at = (number: number, q: string) => rows[rowAt(rows, number, q)]?.key;
    expect(at(1, "")).toBe("t1:message");
    expect(at(1, "cafe")).toBe("t1:0.0");
    expect(at(1, "GARDEN is, open")).toBe("t1:0.1");
    expect(at(1, "nowhere")).toBe("t1:message");
    expect(at(12, "garden")).toBe("t12:0.0");
    expect(at(2, "garden")).toBeUndefined();
  });
});

describe("a tool that a changed file leads to", () => {
  const value = state([turn(1, [tool("a"), tool("b"), tool("c"), tool("agent"), tool("inner", "agent"), tool("deep", "inner")])]);
  const found = (id: string, open: string[] = []) => {
    const rows = rowsOf(value, new Set(open));
    const { index, closed } = rowOfTool(rows, id);
    return [rows[index]?.key, closed];
  };

  it("is found in a folded group, which has to be opened", () => {
    expect(found("b")).toEqual(["tools:a", ["tools:a"]]);
    expect(found("b", ["tools:a"])).toEqual(["tool:b", []]);
    expect(found("missing")).toEqual([undefined, []]);
  });

  it("is found inside the tools of sub-agents", () => {
    expect(found("deep")).toEqual(["tools:a", ["tools:a"]]);
    expect(found("deep", ["tools:a"])).toEqual(["tool:agent", ["tool:inner", "tool:agent"]]);
  });
});

describe("what a turn changed", () => {
  const changes = { turn: 1, state: "ready", reason: null, file_count: 2, added: 3, removed: 1, rewound: false } as const;
  const ends = (one: Turn, known: State["changes"]) => kinds(rowsOf({ ...state([one]), changes: known })).at(-1);

  it("is the last row of a turn that has ended, if it is known and not nothing", () => {
    const done = turn(1, [tool("a")]);
    expect(ends(done, { 1: changes })).toBe("changes");
    expect(ends(turn(1, [tool("a")], false), { 1: changes })).toBe("tool");
    expect(ends(done, { 1: { ...changes, file_count: 0 } })).toBe("tool");
    expect(ends(done, { 1: { ...changes, file_count: null, state: "unavailable" } })).toBe("tool");
  });

  it("appears when it becomes known", () => {
    const maker = new RowMaker();
    const [value, open] = [state([turn(1, [tool("a")])]), new Set<string>()];
    expect(kinds(rowsOf(value, open, maker))).not.toContain("changes");
    expect(kinds(rowsOf({ ...value, changes: { 1: changes } }, open, maker))).toContain("changes");
  });
});
