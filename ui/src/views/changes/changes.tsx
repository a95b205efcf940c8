// The changes of a session or of one of its turns: the list of files, their diffs, comments, and what can be done with
// them. Above: the session view, which shows it beside the conversation or instead of it. Below: the changes' state and
// the parts in this folder. Loaded on first use.

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { Button, IconButton, Link } from "../../parts/button";
import { Icon } from "../../parts/icons";
import { go, pathOf, pathOfChanges, pathOfTool, pathOfTurn, type ChangesPlace } from "../../shell/router";
import { attempt, say } from "../../shell/toast";
import { changesOf, useChanges, usePatches, type FileState } from "../../state/changes";
import { keep, kept } from "../../state/kept";
import { isWritten, useDrafts, type Draft } from "../../state/review";
import { isBusy } from "../../state/sessions";
import { useHead, type SessionStore } from "../../state/store";
import { isViewed, useViewed } from "../../state/viewed";
import { at, query } from "../../wire/api";
import { visible } from "../../text/visible";
import { shortPath } from "../../text/words";
import { discardChanges, type ChangedFile, type Changes, type Operation } from "../../wire/changes";
import { download } from "../../wire/download";
import { act, undo, type RefusedFiles } from "./acting";
import { useActions } from "./actions";
import "./changes.css";
import { CommitDialog } from "./commit";
import { DiscardDialog, OperationsDialog, UndoDialog } from "./dialogs";
import { Diffs, type DiffsHandle } from "./diffs";
import { FileList } from "./filelist";
import { fileOf, undoableOf } from "./finding";
import { ReviewBar } from "./reviewbar";
import { countOf, useComments, useContents, useFolds } from "./keeping";
import { Notes } from "./notes";
import { RestoreDialog } from "./restoring";
import type { Doing } from "./section";
import { nothing, tell } from "./telling";
import { Tools } from "./toolbar";
import { inTreeOrder } from "./tree";
import { RefusedDialog } from "./undoing";

/** From this width on, the list of files is beside the diffs. */
const LIST_BESIDE_PX = 800;
const LIST_PX = 248;
const NARROW_PX = 480;
/** The least width of the diffs for two columns. */
const SPLIT_PX = 640;

interface Props {
  store: SessionStore;
  place: ChangesPlace;
  /** Whether the conversation is beside it. */
  beside: boolean;
  /** Whether it takes all of the width. */
  wide: boolean;
  onWide: (wide: boolean) => void;
}

type Asking =
  | { kind: "commit" }
  | { kind: "operations" }
  | { kind: "undo"; operation: Operation }
  /** The file as the user sees it and decides about. The server refuses if its content is another one by then. */
  | { kind: "discard"; file: ChangedFile; hunk: number | null }
  | { kind: "restore"; point: "before" | "after"; file: ChangedFile | null }
  | { kind: "refused"; why: RefusedFiles }
  | null;

export default function ChangesView({ store, place, beside, wide, onWide }: Props) {
  const session = store.id;
  const { turn } = place;
  const head = useHead(store);
  const [ignoreWhitespace, setIgnoreWhitespace] = useState(() => kept("changes.whitespace") === "ignore");
  const [wantsSplit, setWantsSplit] = useState(() => kept("changes.split") === "yes");
  const [flat, setFlat] = useState(() => kept("changes.flat") === "yes");
  const [width, setWidth] = useState(0);
  const [list, setList] = useState<boolean | null>(null);
  const [asking, setAsking] = useState<Asking>(null);
  const [current, setCurrent] = useState<string | null>(null);
  const changesStore = changesOf(session, turn, ignoreWhitespace);
  const { changes, files: found, trouble, fresh } = usePatches(changesStore);
  const files = useMemo(() => (flat ? found : ordered(found)), [found, flat]);
  const viewed = useViewed(session);
  const drafts = useDrafts(session);
  const busy = isBusy(head.session);
  const root = useRef<HTMLDivElement>(null);
  const diffs = useRef<DiffsHandle>(null);
  const refused = useCallback((why: RefusedFiles) => setAsking({ kind: "refused", why }), []);
  // The browser's back button goes to other changes, although a question about these is open.
  useEffect(() => setAsking(null), [session, turn]);

  useEffect(() => {
    const element = root.current!;
    const sizes = new ResizeObserver(() => setWidth(element.clientWidth));
    setWidth(element.clientWidth);
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);

  const listBeside = width >= LIST_BESIDE_PX;
  const showsList = list ?? (listBeside && files.length > 1);
  const canSplit = width - (listBeside && showsList ? LIST_PX : 0) >= SPLIT_PX;
  const split = wantsSplit && canSplit;
  const folds = useFolds(files, viewed, session);
  const content = useContents(session, turn, files);
  const { comments, sent } = useComments(changes, turn, drafts);
  const lost = useMemo(() => (fresh ? lostDrafts(drafts, turn, files) : []), [fresh, drafts, turn, files]);
  const refusal = refusalOf(changes, busy);

  // The keys of this view work while the focus is in it, or nowhere.
  const within = useCallback(() => {
    const focused = document.activeElement;
    return !document.querySelector("dialog[open]") && (!!root.current?.contains(focused) || (!beside && (focused === document.body || focused?.tagName === "MAIN")));
  }, [beside]);

  const latest = useRef({ folds, files, content, refusal, ignoreWhitespace, beside });
  latest.current = { folds, files, content, refusal, ignoreWhitespace, beside };
  const doing = useMemo<Doing>(
    () => ({
      session,
      turn,
      fold: (path) => latest.current.folds.toggle(path),
      view: (path, seen) => {
        const one = latest.current.files.find(({ file }) => file.path === path);
        if (one) latest.current.folds.view(one.file, seen);
      },
      unfold: (path, gap, how) => void attempt(latest.current.content.unfold(path, gap, how)),
      discard: (file, hunk) => {
        const now = latest.current;
        if (now.refusal !== null) return say(`Changes can't be discarded now. ${now.refusal}.`);
        // A new or deleted file is one part.
        const part = ["added", "deleted"].includes(file.status) ? null : hunk;
        // The parts that are shown are not those that the server knows.
        if (part !== null && now.ignoreWhitespace) return say("While changes of whitespace are hidden, a part can't be discarded. Shift+X discards all changes of the file.");
        setAsking({ kind: "discard", file, hunk: part });
      },
      restore: (file, point) => {
        const why = latest.current.refusal;
        if (why !== null) say(`Files can't be restored now. ${why}.`);
        else setAsking({ kind: "restore", file, point });
      },
      read: (path) => void changesOf(session, turn, latest.current.ignoreWhitespace).readOne(path),
      download: (file, side) => void attempt(download(at(session, "/changes/content" + query({ turn, path: side === "before" ? (file.old_path ?? file.path) : file.path, side })), file.path.slice(file.path.lastIndexOf("/") + 1))),
      toTool: (tool) => go(latest.current.beside ? pathOfChanges(session, turn, null, tool) : pathOfTool(session, tool.turn, tool.tool_id)),
      leave: (path, draft) => diffs.current?.leave(path, "draft:" + draft),
    }),
    [session, turn],
  );
  const discard = ({ file, hunk }: Extract<Asking, { kind: "discard" }>) => void act(session, discardChanges(session, { turn, path: file.path, hunks: hunk === null ? null : [hunk], new_id: file.new_id, outside: turn === null && file.outside ? "overwrite" : null }), refused);

  const openFile = useCallback((path: string) => {
    latest.current.folds.open(path);
    diffs.current?.goTo(path);
    if (!listBesideNow(root.current)) setList(false);
  }, []);
  const hasFiles = files.length > 0;
  useEffect(() => {
    if (hasFiles && !new URLSearchParams(location.search).has("tool")) diffs.current?.focus();
  }, [place, hasFiles]);
  // Start where the link leads. What is known at first may be older than the link.
  const led = useRef<ChangesPlace | null>(null);
  useEffect(() => {
    if (!hasFiles || !changes || led.current === place) return;
    const file = place.file === null && place.edit === null ? null : fileOf(changes, place);
    if (file === null && !fresh) return;
    led.current = place;
    if (file) openFile(file.path);
    else if (place.file !== null) say(`${visible(shortPath(place.file, changes.workdir))} is not among the files that ${turn === null ? "the session" : `turn ${turn}`} changed.`);
  }, [place, hasFiles, changes, fresh]);
  useEffect(() => {
    if (!hasFiles && !beside) root.current?.focus();
  }, [hasFiles, beside]);

  const close = () => go(pathOf(session));
  const options = useMemo(() => ({ split, contents: changes?.source === "snapshots" || changes?.source === "stored", collapsed: folds.collapsed, unfolded: content.unfolded, content: content.lines, comments, drafts: sent }), [split, changes?.source, folds.collapsed, content.unfolded, content.lines, comments, sent]);
  const counts = useMemo(() => countOf(comments, sent), [comments, sent]);
  const rewound = !!changes?.turns.find((one) => one.turn === turn)?.rewound;
  // A commit is of the whole session, whatever is shown.
  const whole = useChanges(session);
  const commits = whole?.repository != null && whole.source === "snapshots" && whole.files.some((file) => file.committed !== true);
  const allFolded = hasFiles && files.every((one) => folds.collapsed.has(one.file.path));
  const onList = () => setList(!showsList);
  const onSplit = () => (keep("changes.split", wantsSplit ? null : "yes"), setWantsSplit(!wantsSplit));
  const onWhitespace = () => (keep("changes.whitespace", ignoreWhitespace ? null : "ignore"), setIgnoreWhitespace(!ignoreWhitespace));
  const onFlat = () => (keep("changes.flat", flat ? null : "yes"), setFlat(!flat));
  const onCommit = () => setAsking({ kind: "commit" });
  const onOperations = () => setAsking({ kind: "operations" });
  const onRestore = (point: "before" | "after") => setAsking({ kind: "restore", point, file: null });
  const onUndo = () => {
    const operation = undoableOf(changes);
    if (operation) setAsking({ kind: "undo", operation });
    else say("There is nothing to undo.");
  };
  useActions({ session, turn, changes, refusal, commits, busy, canSplit, wide, beside, allFolded, onCommit, onOperations, onUndo, onRestore, onFoldAll: folds.foldAll, onList, onSplit, onWhitespace, onFlat, onWide }, within);

  return (
    <div ref={root} role="region" aria-label="Changes" tabIndex={-1} className="relative flex min-h-0 min-w-0 flex-1 flex-col bg-ground outline-none focus-visible:outline-none">
      <header className="flex min-h-13 shrink-0 items-center gap-1 border-b border-line px-2 py-1 sm:pl-4">
        {!beside && !wide && (
          <Link to={turn === null ? pathOf(session) : pathOfTurn(session, turn)} aria-label="Back to the conversation" title="Back to the conversation" className="-ml-1 inline-flex size-(--target) shrink-0 items-center justify-center rounded-md text-quiet hover:bg-hover">
            <Icon name="back" />
          </Link>
        )}
        <Tools
          session={session}
          turn={turn}
          changes={changes}
          viewed={files.filter(({ file }) => !file.only_outside && isViewed(viewed, file)).length}
          list={showsList}
          onList={onList}
          split={split}
          canSplit={canSplit}
          onSplit={onSplit}
          ignoreWhitespace={ignoreWhitespace}
          onWhitespace={onWhitespace}
          flat={flat}
          onFlat={onFlat}
          onFoldAll={folds.foldAll}
          allFolded={allFolded}
          onRestore={refusal === null && turn !== null ? onRestore : null}
          onOperations={onOperations}
          onCommit={commits ? onCommit : null}
          busy={busy}
          narrow={width < NARROW_PX}
        />
        {beside || wide ? <IconButton icon="wide" label={wide ? "Show the conversation beside" : "Use the whole width"} pressed={wide} size={14} onClick={() => onWide(!wide)} /> : null}
        {(beside || wide) && <IconButton icon="cross" label="Close changes" size={14} onClick={close} />}
      </header>
      {!beside && head.prompts.length > 0 && (
        <Link to={pathOf(session)} className="flex items-center gap-2 border-b border-amber-line bg-amber-soft px-4 py-1.5 text-sm text-amber">
          <span className="min-w-0 flex-1 truncate">Waiting for you: {head.prompts[0]!.title || head.prompts[0]!.questions[0]?.question}</span>
          <span className="underline underline-offset-2">Answer</span>
        </Link>
      )}
      {trouble && (
        <p role="alert" className="flex flex-wrap items-center gap-2 border-b border-line bg-red-soft px-4 py-1.5 text-sm text-red">
          Can't load the changes. {trouble} <Button onClick={() => changesStore.refresh()}>Try again</Button>
        </p>
      )}
      {changes && <Notes told={tell(changes, rewound, ignoreWhitespace)} />}
      <div className={`relative flex min-h-0 flex-1 ${listBeside ? "" : "flex-col"}`}>
        {showsList && hasFiles && (
          <nav aria-label="Changed files" className={`flex shrink-0 flex-col border-line ${listBeside ? "w-62 border-r" : "max-h-[40%] border-b"}`}>
            <FileList files={files} flat={flat} current={current} viewed={viewed} comments={counts} onOpen={openFile} />
          </nav>
        )}
        {hasFiles ? (
          <Diffs key={changesStore.turn ?? 0} ref={diffs} files={files} options={options} viewed={viewed} refusal={refusal} parts={refusal === null && !ignoreWhitespace} doing={doing} onCurrent={setCurrent} within={within} />
        ) : changes ? (
          <p className="mx-auto max-w-[56ch] px-6 py-12 text-center text-sm text-balance text-quiet">{nothing(changes)}</p>
        ) : (
          <div className="flex-1" aria-busy={!trouble} />
        )}
      </div>
      <ReviewBar session={session} drafts={drafts} lost={lost} within={within} agent={head.session?.agent ?? ""} busy={busy} ended={head.session?.state === "ended"} onShow={(draft) => showDraft(draft, turn, session, (path, key) => (folds.open(path), diffs.current?.goTo(path, key)))} onLeave={() => (diffs.current ?? root.current)?.focus()} />
      {asking?.kind === "commit" && <CommitDialog session={session} onClose={() => setAsking(null)} />}
      {asking?.kind === "operations" && changes && <OperationsDialog session={session} operations={changes.operations} onClose={() => setAsking(null)} />}
      {asking?.kind === "discard" && <DiscardDialog file={asking.file} part={asking.hunk !== null} turn={turn} onClose={() => setAsking(null)} onDiscard={() => discard(asking)} />}
      {asking?.kind === "undo" && <UndoDialog operation={asking.operation} onClose={() => setAsking(null)} onUndo={() => void undo(session, asking.operation)} />}
      {asking?.kind === "restore" && turn !== null && <RestoreDialog session={session} turn={turn} point={asking.point} file={asking.file} onClose={() => setAsking(null)} />}
      {asking?.kind === "refused" && <RefusedDialog why={asking.why} onClose={() => setAsking(null)} />}
    </div>
  );
}

/** Why files can't be changed from here; null: they can. */
function refusalOf(changes: Changes | null, busy: boolean): string | null {
  if (busy || changes?.state === "running") return "A turn is running";
  if (changes?.source === "snapshots" && (changes.state === "ready" || changes.state === "partial")) return null;
  return changes?.source === "stored" ? "The working directory can't be reached" : "There is no snapshot of these changes";
}

const listBesideNow = (root: HTMLElement | null) => (root?.clientWidth ?? 0) >= LIST_BESIDE_PX;

const ordered = (files: FileState[]): FileState[] => {
  const places = new Map(inTreeOrder(files.map((one) => one.file)).map((file, index) => [file, index]));
  return files.slice().sort((a, b) => places.get(a.file)! - places.get(b.file)!);
};

/** Comments on these changes that the diffs have no place for: their file was changed back, or has another name. */
function lostDrafts(drafts: Draft[], turn: number | null, files: FileState[]): Draft[] {
  const known = new Set(files.map(({ file }) => file.path));
  return drafts.filter((one) => isWritten(one) && one.turn === turn && !known.has(one.path));
}

/** A draft may be on the lines of another turn: go there first. */
function showDraft(draft: Draft, turn: number | null, session: string, show: (path: string, key: string) => void): void {
  if (draft.turn !== turn) go(pathOfChanges(session, draft.turn, draft.path));
  else show(draft.path, "draft:" + draft.id);
}
