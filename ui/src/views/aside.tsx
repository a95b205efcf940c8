// The panel beside a conversation: plan, changed files, context usage by turn, and an outline for navigation. On small
// screens it opens over the conversation. Above: the session view. Below: the session's state.

import { useEffect, useMemo } from "react";
import { IconButton, Link } from "../parts/button";
import { Ago } from "../parts/clock";
import { Counts } from "../parts/diff";
import { go, pathOf, pathOfChanges, pathOfTurn } from "../shell/router";
import type { State } from "../state/session";
import { useCalmly, type SessionStore } from "../state/store";
import { counted } from "../text/difference";
import { changes as changesOfTool } from "../text/tool";
import { count as shortCount, money, plural, shortPath } from "../text/words";
import { ownOf, type Changes } from "../wire/changes";
import type { Diff, PlanPart, TurnInfo } from "../wire/types";
import { PlanList } from "./turnrows";

const SHOWN_TURNS = 60;

/** Whether the panel fits beside the conversation. Otherwise it opens over it. */
export const isWide = () => matchMedia("(min-width: 80rem)").matches;

export function Aside({ store, changes, shown, beside, onClose }: { store: SessionStore; changes: Changes | null; shown: boolean; beside: boolean; onClose: () => void }) {
  const state = useCalmly(store);
  useEffect(() => {
    if (!shown) return;
    const close = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || isWide() || document.querySelector("dialog[open], [popover]:popover-open")) return;
      event.preventDefault();
      event.stopPropagation();
      onClose();
    };
    addEventListener("keydown", close, true);
    return () => removeEventListener("keydown", close, true);
  }, [shown]);
  const plan = useMemo(() => {
    for (const turn of state.turns.toReversed()) {
      const found = turn.parts.findLast((part): part is PlanPart => part.type === "plan");
      if (found && !turn.rewound) return found;
    }
    return null;
  }, [state.turns]);
  return (
    <>
      {shown && <div aria-hidden="true" onClick={onClose} className="fixed inset-0 z-20 bg-strong opacity-30 xl:hidden" />}
      <aside aria-label="Plan, files and outline" className={`w-72 shrink-0 overflow-y-auto border-l border-line bg-ground p-4 text-sm max-xl:fixed max-xl:inset-y-0 max-xl:right-0 max-xl:z-30 max-xl:w-[min(320px,88vw)] max-xl:shadow-2xl xl:relative xl:z-50 ${shown ? "" : "max-xl:hidden"} ${beside ? "" : "xl:hidden"}`}>
        <div className="mb-2 flex justify-end xl:hidden">
          <IconButton icon="cross" label="Close panel" onClick={onClose} />
        </div>
        {plan && <Section title="Plan"><PlanList part={plan} /></Section>}
        <Files state={state} changes={changes} />
        <Spent state={state} />
        <Outline state={state} onClose={onClose} />
        <Section title="Events">
          <Link to={pathOf(state.id) + "/events"} className="reach text-quiet underline underline-offset-2 hover:text-text">{state.seq.toLocaleString("en")} stored</Link>
        </Section>
      </aside>
    </>
  );
}

function Section({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <section className="mb-6">
      <h2 className="mb-2 text-xs font-semibold text-quiet">{title}</h2>
      {children}
    </section>
  );
}

const known = new WeakMap<Diff, { first: Diff; counts: { added: number; removed: number } }>();

/** Line counts from before the first change to after the last. Each pair is compared only once. */
function countsOf(first: Diff, last: Diff): { added: number; removed: number } {
  const before = known.get(last);
  if (before?.first === first) return before.counts;
  const made = counted(first.old_text, last.new_text);
  known.set(last, { first, counts: made });
  return made;
}

const SHOWN_FILES = 12;

/** Changed files, as links to their diffs. Without the server's answer, those that the agent's own edits changed. */
function Files({ state, changes }: { state: State; changes: Changes | null }) {
  const edited = useEdits(state, changes === null);
  const own = useMemo(() => changes && ownOf(changes), [changes]);
  const files = own?.files ?? edited;
  if (!files.length) return null;
  const count = own ? own.file_count : null;
  return (
    <Section title="Changed files">
      <ul className="space-y-1">
        {files.slice(0, SHOWN_FILES).map((file) => (
          <li key={file.path}>
            <Link to={pathOfChanges(state.id, null, file.path, null, "edit" in file ? file.edit : null)} className="-mx-1 flex items-baseline justify-between gap-2 rounded px-1 hover:bg-hover">
              <span className="min-w-0 truncate font-mono text-xs" title={file.path}>{shortPath(file.path, state.session?.workdir ?? "")}</span>
              <Counts added={file.added} removed={file.removed} />
            </Link>
          </li>
        ))}
      </ul>
      <Link to={pathOfChanges(state.id)} className="reach mt-2 inline-block text-xs text-quiet underline underline-offset-2 hover:text-text">{files.length > SHOWN_FILES ? (count === null ? "Review all files" : `Review all ${plural(count, "file")}`) : "Review changes"}</Link>
    </Section>
  );
}

function useEdits(state: State, wanted: boolean) {
  return useMemo(() => {
    const found = new Map<string, { first: Diff; last: Diff; edit: string }>();
    for (const turn of wanted ? state.turns : []) {
      if (turn.rewound) continue;
      for (const part of turn.parts) {
        if (part.type !== "tool") continue;
        for (const diff of changesOfTool(part)) {
          const before = found.get(diff.path);
          found.set(diff.path, { first: before?.first ?? diff, last: diff, edit: part.tool_id });
        }
      }
    }
    return [...found].map(([path, { first, last, edit }]) => ({ path, edit, ...countsOf(first, last) }));
  }, [state.turns, wanted]);
}

function Spent({ state }: { state: State }) {
  const infos = state.turns.map((turn) => turn.info).filter((info): info is TurnInfo => !!info?.usage?.context_used && !!info.usage.context_size);
  const usage = state.session?.usage;
  const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  if (!infos.length && !tokens) return null;
  const last = infos.slice(-40);
  const fill = (info: TurnInfo) => Math.min(1, info.usage!.context_used! / info.usage!.context_size!);
  return (
    <Section title="Usage">
      {last.length > 0 && (
        <div role="img" aria-label={`Context usage by turn; now ${Math.round(100 * fill(last[last.length - 1]!))} percent`} className="mb-1 flex h-8 items-end gap-px border-b border-line">
          {last.map((info) => <span key={info.turn} title={`Turn ${info.turn}: ${Math.round(100 * fill(info))} % of context`} style={{ height: `${Math.max(4, 100 * fill(info))}%` }} className="max-w-3 min-w-0.5 flex-1 bg-accent" />)}
        </div>
      )}
      <p className="text-xs text-quiet tabular-nums">
        {last.length > 0 && <>{Math.round(100 * fill(last[last.length - 1]!))} % of context{tokens > 0 && " · "}</>}
        {tokens > 0 && <>{shortCount(usage?.input_tokens ?? 0)} in · {shortCount(usage?.output_tokens ?? 0)} out</>}{usage?.cost_usd != null && <> · {money(usage.cost_usd)}</>}
      </p>
    </Section>
  );
}

function Outline({ state, onClose }: { state: State; onClose: () => void }) {
  const known = new Map(state.turns.map((turn) => [turn.turn, turn]));
  const infos = new Map((state.session?.turns ?? []).map((info) => [info.turn, info]));
  const all = state.visible;
  const turns = all.slice(-SHOWN_TURNS);
  if (!turns.length) return null;
  return (
    <Section title="Turns">
      {all.length > turns.length && (
        <label className="mb-2 flex items-center gap-2 text-xs text-quiet">
          Go to turn
          <input type="number" min={all[0]} max={all[all.length - 1]} aria-label="Turn number" className="w-20 rounded border border-line bg-raised px-1 py-0.5" required onKeyDown={(event) => event.key === "Enter" && event.currentTarget.checkValidity() && (go(pathOfTurn(state.id, Number(event.currentTarget.value))), onClose())} />
          of {all[all.length - 1]}
        </label>
      )}
      <ol className="space-y-0.5" onClick={onClose}>
        {turns.map((turn) => (
          <li key={turn}>
            <Link to={pathOfTurn(state.id, turn)} className="flex w-full gap-2 rounded px-1 py-0.5 text-left hover:bg-hover">
              <span className="w-6 shrink-0 text-right text-xs leading-5 text-quiet tabular-nums">{turn}</span>
              {known.get(turn)?.message ? <span className="truncate">{known.get(turn)!.message!.text.split("\n")[0]}</span> : <span className="truncate text-quiet">{infos.has(turn) ? <Ago at={infos.get(turn)!.started_at} /> : "…"}</span>}
            </Link>
          </li>
        ))}
      </ol>
    </Section>
  );
}
