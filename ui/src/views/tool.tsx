// A tool call on one line: action, subject, duration and outcome. Expanded, it shows input and output. Above: the
// conversation. Below: diffs and code. A sub-agent's tools are shown inside the tool that started it.

import { memo, useMemo } from "react";
import { Link } from "../parts/button";
import { useSeconds } from "../parts/clock";
import { Counts, DiffView } from "../parts/diff";
import { Icon } from "../parts/icons";
import { BlockView, Code, CopyButton } from "../parts/markdown";
import { grow, NOTHING, shown } from "../text/blocks";
import { counted } from "../text/difference";
import { pathOfChanges } from "../shell/router";
import { changes, DELEGATING, describe, field, isFailed, isRunning, took } from "../text/tool";
import { duration, plural, shortPath } from "../text/words";
import type { Json, ToolPart } from "../wire/types";
import type { Asked } from "./rows";

const SHOWN_CHARS = 20_000;

function Running({ since }: { since: string }) {
  const now = useSeconds();
  return <span className="text-accent tabular-nums">{duration(Math.max(0, now - Date.parse(since)))}</span>;
}

interface Props {
  tool: ToolPart;
  childTools: ToolPart[];
  all: ToolPart[];
  workdir: string;
  open: Set<string>;
  toggle: (key: string) => void;
  live: boolean;
  asked: Asked;
  session: string;
  turn: number;
}

export const ToolView = memo(function ToolView({ tool, childTools, all, workdir, open, toggle, live, asked, session, turn }: Props) {
  const key = "tool:" + tool.tool_id;
  const isOpen = open.has(key);
  const { verb, subject, code } = describe(tool, workdir);
  const changed = useMemo(() => {
    const made = changes(tool);
    if (!made.length) return null;
    const sum = made.map((diff) => counted(diff.old_text, diff.new_text)).reduce((a, b) => ({ added: a.added + b.added, removed: a.removed + b.removed }));
    return { ...sum, path: made[0]!.path };
  }, [tool.diff, tool.outcome, tool.status, tool.is_error]);
  const ms = took(tool);
  const failed = isFailed(tool);
  const failedInside = childTools.filter(isFailed).length;
  const waits = isRunning(tool) && live && asked.has(tool.tool_id);
  const running = isRunning(tool) && live && !waits;
  return (
    <div className="max-w-[92ch]">
      <div className="flex min-w-0 items-center">
      <button type="button" aria-expanded={isOpen} onClick={() => toggle(key)} className="group flex w-full min-w-0 flex-1 items-center gap-2 rounded-md py-1 pr-2 pl-1 text-left text-sm hover:bg-hover">
        <Icon name="right" size={12} className={`text-quiet transition-transform ${isOpen ? "rotate-90" : ""}`} />
        {running && <span className="pulse size-2 shrink-0 rounded-full bg-accent" aria-hidden="true" />}
        <span className="min-w-0 flex-1 truncate">
          {verb}
          {subject && " "}
          {subject && <span className={`ml-0.5 text-sm text-quiet group-hover:text-text ${code ? "font-mono" : ""}`}>{subject}</span>}
        </span>
        {childTools.length > 0 && (
          <span className="text-xs whitespace-nowrap text-quiet">
            {plural(childTools.length, "tool")}<span className="hidden sm:inline"> inside</span>{failedInside > 0 && <span className="text-red">, {failedInside} failed</span>}
          </span>
        )}
        <span className="shrink-0 text-right text-xs whitespace-nowrap text-quiet tabular-nums">
          {running && tool.started_at ? <Running since={tool.started_at} /> : failed ? <>{ms !== null && ms >= 10 && duration(ms)} <span className="font-medium text-red">failed</span></> : waits ? <span className="text-amber">waiting for you</span> : isRunning(tool) ? "not finished" : ms !== null && ms >= 10 ? duration(ms) : tool.outcome ? null : "done"}
        </span>
      </button>
      {changed && (
        <Link to={pathOfChanges(session, turn, changed.path, null, tool.tool_id)} title="Show in the changes of this turn" aria-label={`Show ${shortPath(changed.path, workdir)} in the changes of turn ${turn}: ${changed.added} added, ${changed.removed} removed`} className="reach shrink-0 rounded-md px-1.5 py-1 hover:bg-hover">
          <Counts added={changed.added} removed={changed.removed} />
        </Link>
      )}
      </div>
      {isOpen && <ToolDetails tool={tool} childTools={childTools} all={all} workdir={workdir} open={open} toggle={toggle} live={live} asked={asked} session={session} turn={turn} />}
    </div>
  );
});

function ToolDetails({ tool, childTools, all, workdir, open, toggle, live, asked, session, turn }: Props) {
  const inside = childTools.length > 0 && (
    <div role="group" aria-label="Tools of the sub-agent">
      {childTools.map((child) => (
        <ToolView key={child.tool_id} tool={child} childTools={all.filter((one) => one.parent_tool_id === child.tool_id)} all={all} workdir={workdir} open={open} toggle={toggle} live={live} asked={asked} session={session} turn={turn} />
      ))}
    </div>
  );
  if (DELEGATING.includes(tool.name)) {
    const task = field(tool.input, "prompt");
    return (
      <div className="mt-1 mb-2 ml-2 space-y-2 border-l border-line pl-4">
        {task && task !== field(tool.input, "description") && <Told label="Task" text={task} />}
        {inside}
        {tool.content ? <Told label={isFailed(tool) ? "Error" : isRunning(tool) ? "Output so far" : "Report"} text={tool.content} bad={isFailed(tool)} /> : !isRunning(tool) && <p className="text-xs text-quiet">No report.</p>}
      </div>
    );
  }
  return (
    <div className="mt-1 mb-2 ml-2 space-y-2 border-l border-line pl-4">
      {tool.diff?.map((diff, index) => <DiffView key={index} diff={diff} workdir={workdir} />)}
      {inside}
      {tool.input != null && !(tool.kind === "edit" && tool.diff?.length) && <Labelled label="Input" text={asText(tool.input)} lang={typeof tool.input === "string" ? "" : field(tool.input, "command") ? "bash" : "json"} />}
      {tool.content ? <Labelled label={isFailed(tool) ? "Error" : "Output"} text={tool.content} lang="" bad={isFailed(tool)} /> : !isRunning(tool) && !tool.diff?.length ? <p className="text-xs text-quiet">No output.</p> : null}
    </div>
  );
}

/** A sub-agent's task or report, rendered as markdown like other agent text. */
function Told({ label, text, bad = false }: { label: string; text: string; bad?: boolean }) {
  const cut = text.length > SHOWN_CHARS;
  const blocks = useMemo(() => shown(grow(NOTHING, text.slice(-SHOWN_CHARS))), [text]);
  return (
    <div>
      <Heading label={label} text={text} bad={bad} />
      <div className="max-h-80 space-y-2 overflow-auto text-sm" tabIndex={0} role="region" aria-label={label}>{blocks.map((block, index) => <BlockView key={index} block={block} />)}</div>
      {cut && <Cut />}
    </div>
  );
}

export function asText(input: Json): string {
  if (typeof input === "string") return input;
  const command = field(input, "command");
  if (command && Object.keys(input as object).every((key) => ["command", "description", "timeout"].includes(key))) return command;
  return JSON.stringify(input, null, 2);
}

function Labelled({ label, text, lang, bad = false }: { label: string; text: string; lang: string; bad?: boolean }) {
  const cut = text.length > SHOWN_CHARS;
  return (
    <div>
      <Heading label={label} text={text} bad={bad} />
      <Code text={cut ? text.slice(-SHOWN_CHARS) : text} lang={lang} className="max-h-80 overflow-auto rounded-md border border-line bg-sunken px-3 py-2 break-words whitespace-pre-wrap" />
      {cut && <Cut />}
    </div>
  );
}

function Heading({ label, text, bad }: { label: string; text: string; bad: boolean }) {
  return (
    <div className="flex items-center justify-between text-xs text-quiet">
      <span className={bad ? "text-red" : ""}>{label}</span>
      <CopyButton text={text} label={`Copy ${label.toLowerCase()}`} className="size-6" />
    </div>
  );
}

const Cut = () => <p className="text-xs text-quiet">Only the last {SHOWN_CHARS.toLocaleString("en")} characters are shown. Copy to get everything.</p>;

/** Consecutive finished tools, as one line. */
export function ToolsView({ tools, isOpen, onToggle }: { tools: ToolPart[]; isOpen: boolean; onToggle: () => void }) {
  const failed = tools.filter(isFailed).length;
  const denied = tools.filter((tool) => tool.outcome === "denied").length;
  const starts = tools.map((tool) => Date.parse(tool.started_at ?? "")).filter(Number.isFinite);
  const ends = tools.map((tool) => Date.parse(tool.ended_at ?? "")).filter(Number.isFinite);
  const waited = tools.reduce((sum, tool) => sum + (tool.waited_ms ?? 0), 0);
  const ms = starts.length && ends.length ? Math.max(0, Math.max(...ends) - Math.min(...starts) - waited) : null;
  return (
    <button type="button" aria-expanded={isOpen} onClick={onToggle} className="flex w-full max-w-[92ch] items-center gap-2 rounded-md py-1 pr-2 pl-1 text-left text-sm hover:bg-hover">
      <Icon name="right" size={12} className={`text-quiet ${isOpen ? "rotate-90" : ""}`} />
      <span className="flex-1">
        {plural(tools.length, "tool")}{" "}
        <span className="ml-1 text-quiet">{[...new Set(tools.map((tool) => tool.name))].slice(0, 4).join(", ")}</span>
      </span>
      {denied > 0 && <span className="text-xs text-quiet">{denied} denied</span>}
      {failed > 0 && <span className="text-xs font-medium text-red">{failed} failed</span>}
      {ms !== null && ms >= 10 && <span className="text-xs text-quiet tabular-nums">{duration(ms)}</span>}
    </button>
  );
}
