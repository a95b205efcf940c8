// Directories on the server: the ones to offer, completions of a path, and what one directory is. Above: the views of
// folders. Below: the API. A newer question cancels an older one.

import { useEffect, useState } from "react";
import { Problem, sentence } from "../wire/api";
import { getDirectories, getDirectory, type Directories, type Directory } from "../wire/changes";

const PAUSE_MS = 80;
const CHECK_MS = 200;

export interface Completed {
  /** The text that was completed; null: recent directories and projects. */
  typed: string | null;
  found: Directories | null;
  trouble: string;
}

export const isPath = (typed: string) => typed.startsWith("/") || /^~(\/|$)/.test(typed);

/** Ask again for each question, and keep the last answer until the next arrives. */
function useAnswer<T>(question: string | null, pause: number, ask: (question: string, signal: AbortSignal) => Promise<T>): { question: string | null; answer: T | null; error: unknown } {
  const [known, setKnown] = useState<{ question: string | null; answer: T | null; error: unknown }>({ question: null, answer: null, error: null });
  useEffect(() => {
    if (question === null) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      ask(question, abort.signal).then(
        (answer) => !abort.signal.aborted && setKnown({ question, answer, error: null }),
        (error: unknown) => !abort.signal.aborted && setKnown({ question, answer: null, error }),
      );
    }, pause);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [question, pause]);
  return known;
}

/** Recent directories, projects and the home directory, read once each time `wanted` becomes true. */
export function useKnownDirectories(wanted: boolean): Directories | null {
  return useAnswer(wanted ? "" : null, 0, (_, signal) => getDirectories(null, { signal })).answer;
}

/** Completions of a path, while `wanted`. */
export function useCompletedPath(typed: string, wanted: boolean): Completed {
  const path = wanted && isPath(typed) ? typed : null;
  const { question, answer, error } = useAnswer(path, PAUSE_MS, (asked, signal) => getDirectories(asked, { recent: false, signal }));
  return { typed: question, found: answer, trouble: error ? sentence(error) : "" };
}

export interface Checked {
  /** The path that was looked at. While it differs from the current one, the answer is on its way. */
  path: string | null;
  directory: Directory | null;
  /** Why no session can work there. */
  wrong: string;
}

/** What a directory is; nothing for a path that is not absolute. */
export function useDirectory(path: string): Checked {
  const asked = path.startsWith("/") ? path : null;
  const { question, answer, error } = useAnswer(asked, CHECK_MS, getDirectory);
  const wrong = answer?.private ? "This is Perdure's own data. Choose another folder." : error ? (error instanceof Problem && error.status === 404 ? "There is no such folder on the server." : sentence(error)) : "";
  return asked === null ? { path: null, directory: null, wrong: "" } : { path: question, directory: answer, wrong };
}
