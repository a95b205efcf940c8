// Renders one block of text or code. Above: the conversation. Below: html.ts sanitizes it, highlight.ts colours it. A
// block is rendered again only when its text changes.

import { memo, useMemo, useState } from "react";
import { codeOf, type Block } from "../text/blocks";
import { useHighlight } from "../text/highlight";
import { html } from "../text/html";
import { IconButton } from "./button";
import { copyText } from "./copy";

export const BlockView = memo(
  function BlockView({ block }: { block: Block }) {
    if (block.kind === "code") return <CodeBlock block={block} />;
    return <Prose raw={block.links ? `${block.raw}\n\n${block.links}` : block.raw} />;
  },
  (a, b) => a.block.raw === b.block.raw && a.block.kind === b.block.kind && a.block.last === b.block.last && a.block.first === b.block.first && a.block.links === b.block.links && a.block.pieces === b.block.pieces,
);

export const Prose = memo(function Prose({ raw, className = "" }: { raw: string; className?: string }) {
  const made = useMemo(() => ({ __html: html(raw) }), [raw]);
  return <div className={"md " + className} dangerouslySetInnerHTML={made} />;
});

/** A code block, or one piece of a long one. Pieces join without a visible seam. */
function CodeBlock({ block }: { block: Block }) {
  const edges = `${block.first ? "rounded-t-md border-t pt-2" : ""} ${block.last ? "rounded-b-md border-b pb-2" : ""}`;
  return (
    <div className="group relative max-w-full">
      <Code text={block.raw} lang={block.lang ?? ""} className={`overflow-x-auto border-x border-line bg-sunken px-3 ${edges}`} />
      {block.first && <CopyButton text={() => codeOf(block)} className="on-hover reach absolute top-1 right-1 bg-sunken [--target:32px]" />}
    </div>
  );
}

export const Code = memo(function Code({ text, lang, className = "" }: { text: string; lang: string; className?: string }) {
  const highlight = useHighlight();
  const coloured = useMemo(() => (highlight && lang ? highlight(text, lang.toLowerCase()) : null), [highlight, text, lang]);
  if (coloured !== null) {
    return (
      <pre className={"code " + className} tabIndex={0}>
        <code dangerouslySetInnerHTML={{ __html: coloured }} />
      </pre>
    );
  }
  return (
    <pre className={"code " + className} tabIndex={0}>
      <code>{text}</code>
    </pre>
  );
});

export function CopyButton({ text, className = "", label = "Copy" }: { text: string | (() => string); className?: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    if (!(await copyText(typeof text === "string" ? text : text()))) return;
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return <IconButton icon={done ? "check" : "copy"} label={done ? "Copied" : label} onClick={() => void copy()} className={className} size={14} />;
}
