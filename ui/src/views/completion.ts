// Completion at the cursor: slash commands at the start of the text, files after an @. Above: the composer. Below: the
// session's commands and the server's file list.

import { useEffect, useState } from "react";
import { at, get, query } from "../wire/api";
import type { Command } from "../wire/types";

export interface Completion {
  value: string;
  hint: string;
}

interface Wanted {
  kind: "command" | "file";
  word: string;
  from: number;
}

export function wantedAt(text: string, cursor: number): Wanted | null {
  const before = text.slice(0, cursor);
  const command = /^\/([\w:.-]*)$/.exec(before);
  if (command) return { kind: "command", word: command[1]!, from: 0 };
  const file = /(?:^|\s)@([^\s@]*)$/.exec(before);
  return file ? { kind: "file", word: file[1]!, from: cursor - file[1]!.length - 1 } : null;
}

const MOST = 8;

export function useCompletions(session: string | null, commands: Command[], wanted: Wanted | null): Completion[] {
  const [files, setFiles] = useState<{ word: string | null; found: string[] }>({ word: null, found: [] });
  const word = wanted?.kind === "file" ? wanted.word : null;
  useEffect(() => {
    if (word === null || !session) return;
    let current = true;
    const timer = setTimeout(() => {
      get<{ files: string[] }>(at(session, "/files" + query({ q: word, limit: MOST })))
        .then((answer) => current && setFiles({ word, found: answer.files }))
        .catch(() => current && setFiles({ word, found: [] }));
    }, 80);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [word, session]);
  if (!wanted) return [];
  // Ignore files found for an earlier word.
  if (wanted.kind === "file") return (files.word === wanted.word ? files.found : []).map((path) => ({ value: "@" + path + " ", hint: "" }));
  const lower = wanted.word.toLowerCase();
  return commands
    .filter((command) => command.name.toLowerCase().includes(lower))
    .slice(0, MOST)
    .map((command) => ({ value: "/" + command.name.replace(/^\//, "") + " ", hint: command.description ?? "" }));
}
