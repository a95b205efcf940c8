// Nodes: the servers that share these sessions, with state and actions. Above: the app. Below: the API. Draining and
// removing ask for confirmation and say what happens to the node's sessions.

import { useEffect, useState } from "react";
import { Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { CopyButton } from "../parts/markdown";
import { PageHead } from "../parts/pagehead";
import { attempt, say } from "../shell/toast";
import { refreshNodes, useNodes } from "../state/nodes";
import { drainWords, isGone, lastSeen, loadWords, moveCommand, removeWords, stateOf, waitingWords, type NodeTone } from "../text/nodes";
import { exact, plural } from "../text/words";
import { post, remove } from "../wire/api";
import { atNode, type Node, type Removed } from "../wire/nodes";

const LOOK_MS = 5000;
const DOTS: Record<NodeTone, string> = { good: "bg-green", working: "border-2 border-accent", waiting: "bg-amber-mark", bad: "bg-red" };
const TONES: Record<NodeTone, string> = { good: "text-green", working: "text-accent", waiting: "text-amber", bad: "text-red" };

export default function Nodes() {
  const { value, loaded, error } = useNodes();
  const [asking, setAsking] = useState<{ what: "drain" | "remove"; node: Node } | null>(null);
  useEffect(() => {
    void refreshNodes();
    const timer = setInterval(() => document.visibilityState === "visible" && void refreshNodes(), LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  const alone = value.nodes.length === 1;
  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Nodes" about="Servers that share these sessions" />
      <div className="mx-auto max-w-[92ch] p-4 sm:p-6">
        {error && <p role="alert" className="mb-4 text-sm text-red">{error}</p>}
        {!loaded && !error && <p role="status" className="text-sm text-quiet">Loading nodes</p>}
        <ul aria-label="Nodes" className="divide-y divide-line">{value.nodes.map((node) => <Row key={node.id} node={node} alone={alone} onAsk={(what) => setAsking({ what, node })} />)}</ul>
        {loaded && alone && <p className="mt-6 max-w-[60ch] text-sm text-quiet">This server is the only node. Several servers can share their sessions through a PostgreSQL database; see docs/nodes.md.</p>}
      </div>
      {asking?.what === "drain" && <Drain node={asking.node} onClose={() => setAsking(null)} />}
      {asking?.what === "remove" && <Remove node={asking.node} onClose={() => setAsking(null)} />}
    </div>
  );
}

function Row({ node, alone, onAsk }: { node: Node; alone: boolean; onAsk: (what: "drain" | "remove") => void }) {
  const { word, tone } = stateOf(node);
  const seen = lastSeen(node);
  const waiting = waitingWords(node);
  return (
    <li className="flex flex-wrap items-start gap-x-4 gap-y-2 py-3">
      <div className="min-w-0 flex-1 basis-72">
        <h2 className="font-semibold break-words">
          {node.name}
          {node.this && !alone && <span className="ml-2 inline-block rounded-full bg-accent-soft px-2 text-xs font-medium whitespace-nowrap text-accent">this node</span>}
        </h2>
        <p className="text-sm">
          <span aria-hidden="true" className={`mr-1.5 inline-block size-2 rounded-full ${DOTS[tone]}`} />
          <span className={`font-medium ${TONES[tone]}`}>{word}</span>
          {isGone(node) && node.draining && <span> · draining</span>}
          {seen && <span className="tabular-nums"> · {seen}</span>}
          {!isGone(node) && node.started_at && <span className="text-quiet" title={exact(node.started_at)}> · started {new Date(node.started_at).toLocaleDateString(undefined, { dateStyle: "medium" })}</span>}
        </p>
        <p className="text-sm tabular-nums">{loadWords(node)}</p>
        <p className="text-sm break-words text-quiet">
          {[node.version && `Perdure ${node.version}`, node.url].filter(Boolean).join(" · ")}
          {node.labels.map((label) => <span key={label}> · <span className="whitespace-nowrap">#{label}</span></span>)}
        </p>
        {waiting && (
          <>
            <p className="mt-1 text-sm break-words text-amber">{waiting}</p>
            <p className="flex items-center gap-1 text-sm"><code className="min-w-0 break-words">{moveCommand(node)}</code><CopyButton text={moveCommand(node)} label="Copy command" /></p>
          </>
        )}
      </div>
      {!alone && (
        <div className="flex flex-wrap gap-2">
          {node.draining ? <Button icon="play" aria-label={`Resume ${node.name}`} onClick={() => void resume(node)}>Resume</Button> : !isGone(node) && <Button icon="pause" aria-label={`Drain ${node.name}`} onClick={() => onAsk("drain")}>Drain</Button>}
          {isGone(node) && !node.this && <Button icon="trash" tone="danger" aria-label={`Remove ${node.name}`} onClick={() => onAsk("remove")}>Remove</Button>}
        </div>
      )}
    </li>
  );
}

async function resume(node: Node): Promise<void> {
  if (await attempt(post(atNode(node.id, "/resume")))) say(`${node.name} accepts turns again.`);
  void refreshNodes();
}

function Drain({ node, onClose }: { node: Node; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const drain = async () => {
    setBusy(true);
    if (await attempt(post(atNode(node.id, "/drain")))) say(`${node.name} is draining.`);
    void refreshNodes();
    onClose();
  };
  return (
    <Dialog title={`Drain ${node.name}?`} onClose={onClose}>
      <p className="mb-4 text-sm">{drainWords(node)}</p>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button tone="primary" disabled={busy} onClick={() => void drain()}>Drain</Button>
      </div>
    </Dialog>
  );
}

function Remove({ node, onClose }: { node: Node; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const forget = async () => {
    setBusy(true);
    const removed = await attempt(remove<Removed>(atNode(node.id)));
    if (removed) say(`Removed ${removed.name}. ${plural(removed.sessions, "session has", "sessions have")} no owner now.`);
    void refreshNodes();
    onClose();
  };
  return (
    <Dialog title={`Remove ${node.name}?`} onClose={onClose}>
      <p className="mb-4 text-sm">{removeWords(node)}</p>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button tone="danger" disabled={busy} onClick={() => void forget()}>Remove</Button>
      </div>
    </Dialog>
  );
}
