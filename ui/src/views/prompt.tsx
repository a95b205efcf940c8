// A waiting prompt: the exact command or diff, and the answers, each with a shortcut key (Y, A, N). Above: the session
// view pins it above the composer, the inbox lists it. Below: the API. The first answer wins.

import { useEffect, useMemo, useRef, useState } from "react";
import { Button, Link } from "../parts/button";
import { Ago } from "../parts/clock";
import { DiffView } from "../parts/diff";
import { Code, Prose } from "../parts/markdown";
import { say } from "../shell/toast";
import { shifts } from "../text/difference";
import { visible } from "../text/visible";
import { at, post, Problem, sentence } from "../wire/api";
import type { Diff, Json, Prompt, PromptOption } from "../wire/types";
import { again, once, optionOf } from "./answering";
import { asText } from "./tool";

export async function answer(session: string, prompt: string, body: Record<string, unknown>): Promise<boolean> {
  try {
    await post(at(session, `/prompts/${encodeURIComponent(prompt)}`), body);
    return true;
  } catch (error) {
    if (error instanceof Problem && error.code === "prompt_resolved") say("This was already answered.");
    else say(sentence(error), true);
    return false;
  }
}

const byKind = (prompt: Prompt, kind: PromptOption["kind"]) => prompt.options.find((option) => option.kind === kind);

/** Answer a permission request by key. Returns whether the key had an effect. */
export function answerByKey(session: string, prompt: Prompt, key: string): boolean {
  if (prompt.kind !== "permission") return false;
  const option = optionOf(prompt.options, key);
  if (!option || !once(prompt.prompt_id)) return false;
  void answer(session, prompt.prompt_id, { option_id: option.option_id }).then((done) => done || again(prompt.prompt_id));
  return true;
}

interface Props {
  session: string;
  prompt: Prompt;
  workdir: string;
  diff?: Diff[];
  /** The project, whose rules can answer future requests. */
  project?: string | null;
  /** Incremented when the user presses N: ask for the reason. */
  denying?: number;
  /** Whether the keys answer this prompt, and whether it was shown long enough for that. */
  keys?: "ready" | "soon" | "none";
  onMark?: () => void;
}

export function PromptCard({ session, prompt, workdir, diff, project, denying = 0, keys = "none", onMark }: Props) {
  return (
    <section aria-label={prompt.kind === "permission" ? "Permission request" : "Question"} data-prompt={prompt.prompt_id} data-keys={keys} onFocus={onMark} onPointerDown={onMark} className="rounded-lg border border-amber-line bg-amber-soft p-3">
      <div className="mb-2 flex items-baseline justify-between gap-3">
        <h3 className="min-w-0 text-sm font-semibold break-words">
          {prompt.kind === "permission" ? <>{visible(prompt.title || prompt.tool || "Allow this")}?</> : prompt.title && prompt.title !== prompt.questions[0]?.question ? prompt.title : "The agent has a question"}
        </h3>
        <Ago at={prompt.asked_at} className="text-xs text-amber" />
      </div>
      {prompt.kind === "permission" ? <Permission session={session} prompt={prompt} workdir={workdir} diff={diff} project={project} denying={denying} keys={keys} /> : <Questions session={session} prompt={prompt} />}
    </section>
  );
}

function isEmpty(input: Json): boolean {
  return input == null || (typeof input === "object" && Object.keys(input).length === 0);
}

function Permission({ session, prompt, workdir, diff, project, denying, keys }: Props) {
  const hint = (key: string) => (keys === "none" ? undefined : key);
  const [reason, setReason] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const shown = prompt.diff?.length ? prompt.diff : (diff ?? []);
  const moved = useMemo(() => shifts(shown), [prompt.diff, diff]);
  const covers = prompt.covers?.length ? prompt.covers : (prompt.always ?? []);
  const allow = byKind(prompt, "allow_once");
  const always = byKind(prompt, "allow_always");
  const deny = byKind(prompt, "reject_once") ?? byKind(prompt, "reject_always");
  const never = byKind(prompt, "reject_once") ? byKind(prompt, "reject_always") : undefined;

  useEffect(() => {
    if (denying) setReason((before) => before ?? "");
  }, [denying]);
  useEffect(() => {
    if (reason !== null) field.current?.focus();
  }, [reason === null]);

  const give = async (body: Record<string, unknown>) => {
    setBusy(true);
    if (!(await answer(session, prompt.prompt_id, body))) setBusy(false);
  };
  const refuse = () => void give(deny ? { option_id: deny.option_id, ...(reason?.trim() ? { reason: reason.trim() } : {}) } : { cancel: true });

  return (
    <>
      <div className="mb-3 max-h-[32vh] space-y-2 overflow-y-auto">
        {shown.map((one, index) => <DiffView key={index} diff={one} workdir={workdir} shift={moved[index]} />)}
        {!isEmpty(prompt.input) && !shown.length && <Code text={visible(asText(prompt.input))} lang={asText(prompt.input).startsWith("{") ? "json" : "bash"} className="overflow-x-auto rounded-md border border-line bg-raised px-3 py-2 break-words whitespace-pre-wrap" />}
        {!!covers.length && <p className="text-xs text-amber">“Always” allows: {visible(covers.join("; "))}</p>}
      </div>
      {reason === null ? (
        <div className="flex flex-wrap gap-2">
          {allow && <Button tone="primary" keys={hint("Y")} disabled={busy} onClick={() => void give({ option_id: allow.option_id })}>Allow</Button>}
          {always && <Button tone={allow ? "plain" : "primary"} keys={hint("A")} disabled={busy} title={always.name} onClick={() => void give({ option_id: always.option_id })}>Always</Button>}
          <Button keys={hint("N")} disabled={busy} onClick={() => setReason("")}>Deny</Button>
          {keys !== "none" && <span className="after-escape self-center text-xs text-amber" aria-hidden="true">Press Esc, then the key</span>}
          <span className="flex-1" />
          {project && <Link to="/settings/projects" className="reach self-center text-xs text-amber underline underline-offset-2">Rules</Link>}
          {never && <Button tone="quiet" disabled={busy} title={never.name} onClick={() => void give({ option_id: never.option_id })}>Never</Button>}
        </div>
      ) : (
        <form
          className="flex flex-wrap items-center gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            refuse();
          }}
        >
          <input
            ref={field}
            value={reason}
            onChange={(event) => setReason(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== "Escape") return;
              event.stopPropagation();
              setReason(null);
            }}
            aria-label="Reason (sent to the agent)"
            placeholder="Reason (optional)"
            className="min-h-(--target) min-w-0 flex-1 basis-36 rounded-md border border-line bg-raised px-2 text-sm"
          />
          <Button type="submit" tone="danger" disabled={busy}>Deny</Button>
          <Button tone="quiet" onClick={() => setReason(null)}>Back</Button>
        </form>
      )}
    </>
  );
}

function Questions({ session, prompt }: { session: string; prompt: Prompt }) {
  const [chosen, setChosen] = useState<Record<string, string[]>>({});
  const [own, setOwn] = useState<Record<string, string>>({});
  const [busy, setBusy] = useState(false);

  const valueOf = (id: string, multiple: boolean): string | string[] | null => {
    const text = own[id]?.trim();
    const all = [...(chosen[id] ?? []), ...(text ? [text] : [])];
    if (!all.length) return null;
    return multiple ? all : all[all.length - 1]!;
  };
  const answers = Object.fromEntries(prompt.questions.map((question) => [question.question_id, valueOf(question.question_id, question.multiple)]));
  const complete = Object.values(answers).every((value) => value !== null);

  const submit = async (body: Record<string, unknown>) => {
    setBusy(true);
    if (!(await answer(session, prompt.prompt_id, body))) setBusy(false);
  };

  const choose = (id: string, label: string, multiple: boolean) => {
    const before = chosen[id] ?? [];
    const next = multiple ? (before.includes(label) ? before.filter((one) => one !== label) : [...before, label]) : [label];
    setChosen({ ...chosen, [id]: next });
    if (!multiple) setOwn({ ...own, [id]: "" });
  };

  return (
    <form
      className="space-y-3"
      onSubmit={(event) => {
        event.preventDefault();
        if (complete) void submit({ answers });
      }}
    >
      <div className="-mx-0.5 max-h-[36vh] space-y-3 overflow-y-auto p-0.5">
        {prompt.questions.map((question) => (
          <fieldset key={question.question_id} className="min-w-0">
            <legend className="mb-1 text-sm">
              {question.header && <span className="mr-2 text-xs font-semibold text-amber">{question.header}</span>}
              <Prose raw={question.question} className="inline-block" />
            </legend>
            <div className="flex flex-col gap-1">
              {question.options.map((option) => (
                <label key={option.label} className="flex cursor-pointer items-start gap-2 rounded-md border border-line bg-raised px-2 py-1.5 text-sm hover:bg-hover">
                  <input type={question.multiple ? "checkbox" : "radio"} name={question.question_id} className="mt-1" checked={(chosen[question.question_id] ?? []).includes(option.label) && !(own[question.question_id] && !question.multiple)} onChange={() => choose(question.question_id, option.label, question.multiple)} />
                  <span className="min-w-0">
                    <span className="block break-words">{option.label}</span>
                    {option.description && <span className="block text-xs text-quiet">{option.description}</span>}
                  </span>
                </label>
              ))}
              <input
                value={own[question.question_id] ?? ""}
                onChange={(event) => setOwn({ ...own, [question.question_id]: event.target.value })}
                aria-label={`Your own answer to: ${question.question}`}
                placeholder={question.options.length ? "Or type your own answer" : "Your answer"}
                className="min-h-(--target) rounded-md border border-line bg-raised px-2 text-sm"
              />
            </div>
          </fieldset>
        ))}
      </div>
      <div className="flex gap-2">
        <Button type="submit" tone="primary" disabled={!complete || busy}>Answer</Button>
        <Button disabled={busy} onClick={() => void submit({ cancel: true })}>Skip</Button>
      </div>
    </form>
  );
}
