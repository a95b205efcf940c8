// Wire types: the API's resources and events. Above: everything. Below: nothing. Fields the page does not read are left
// out; unknown fields are ignored.

import type { Prompt, PromptOption, Question } from "./prompts";
import type { SessionWorktree, Workspace } from "./worktrees";

export type { Prompt, PromptOption, Question, SessionWorktree, Workspace };

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Usage {
  input_tokens?: number | null;
  output_tokens?: number | null;
  cache_read_tokens?: number | null;
  cache_write_tokens?: number | null;
  cost_usd?: number | null;
  context_used?: number | null;
  context_size?: number | null;
}

export interface TurnInfo {
  turn: number;
  run_id: string;
  message_id: string;
  agent: string;
  started_at: string;
  ended_at: string | null;
  duration_ms: number | null;
  stop_reason: string | null;
  exit_code: number | null;
  error: string | null;
  usage: Usage | null;
  cost_usd: number | null;
  /** Null until the turn starts: its message is accepted and may be waiting. */
  context: "live" | "resumed" | "fresh" | null;
  context_reason: string;
  input_bytes: number | null;
  model?: string | null;
  catch_up?: number;
  replayed?: number;
  digested?: number;
  left_out?: number;
}

export interface ConfigOption {
  id: string;
  name: string;
  category?: string;
  type?: string;
  currentValue?: Json;
  options?: { value: string; name: string; description?: string }[];
}

export interface Session {
  id: string;
  project: string | null;
  agent: string;
  title: string;
  summary: string;
  workdir: string;
  labels: string[];
  archived: boolean;
  /** Accepted: a message has a turn that has not started yet. */
  state: "accepted" | "processing" | "idle" | "ended";
  status: "running" | "completed" | "stopped" | "timed-out" | "failed";
  attached: "live" | "suspended" | "ended";
  created_at: string;
  started_at: string | null;
  last_active_at: string;
  ended_at: string | null;
  event_count: number;
  turn_count: number;
  pid: number | null;
  /** The node that owns it. Set in lists and in `GET /api/sessions/{id}`, but not in snapshots. */
  node?: string | null;
  node_name?: string | null;
  native_session_id: string | null;
  model: string | null;
  mode: string | null;
  models: { currentModelId?: string; availableModels?: { modelId: string; name: string }[] } | null;
  modes: { currentModeId?: string; availableModes?: { id: string; name: string }[] } | null;
  config_options: ConfigOption[] | null;
  commands?: Command[] | null;
  error: string | null;
  parent: string | null;
  /** How many times the history was changed. */
  revision?: number;
  limits: { [key: string]: Json };
  /** Its own worktree and branch of a repository. Null: it works in a directory that it may share. */
  worktree?: SessionWorktree | null;
  /** A change to its files that was requested and is not finished. */
  file_operation?: { operation_id: string; action: string } | null;
  queue_length: number;
  pending_prompts: number;
  waiting_until: string | null;
  waiting_reason: string | null;
  /** Why the accepted turn has not started: a code for programs, a sentence for people. */
  waits_for?: { code: string; message: string } | null;
  usage: Usage & { [key: string]: Json | undefined };
  last_line?: string;
  waiting_for?: string;
  turns?: TurnInfo[];
  snippet?: string;
  /** Null: the match is in the title. */
  snippet_turn?: number | null;
}

export interface Command {
  name: string;
  description?: string;
}

export interface Attachment {
  name: string;
  mime_type: string;
  data?: string;
  /** The name under which the server stores it. */
  file?: string;
  /** Its location, if it is only referenced. */
  path?: string;
  uri?: string;
}

export interface Message {
  message_id: string;
  text: string;
  at: string;
  attachments?: Attachment[];
  edited_at?: string;
  origin?: "agent";
}

export interface Diff {
  path: string;
  old_text: string | null;
  new_text: string;
  /** The first line in the new file, if known. Otherwise the diff is a whole file, or a passage at an unknown place. */
  line?: number;
}

export interface TextPart {
  type: "text" | "thinking";
  block: number;
  text: string;
  offset?: number;
}

export interface ToolPart {
  type: "tool";
  tool_id: string;
  name: string;
  kind: string;
  title: string;
  status: "pending" | "in_progress" | "completed" | "failed";
  input: Json;
  parent_tool_id: string | null;
  started_at?: string;
  ended_at?: string;
  content?: string;
  diff?: Diff[];
  locations?: { path: string; line?: number }[];
  is_error?: boolean;
  /** Set if it did not run or did not finish. */
  outcome?: "denied" | "interrupted";
  /** How long it waited for a person. */
  waited_ms?: number;
}

export interface PlanEntry {
  content: string;
  status: string;
  priority: string;
}

export interface PlanPart {
  type: "plan";
  entries: PlanEntry[];
}

export interface ImagePart {
  type: "image";
  mime_type: string;
  size: number;
  /** Base64; null if it is too large or no longer available. */
  data: string | null;
  tool_id: string | null;
}

export interface ResolvedPart {
  type: "prompt_resolved";
  prompt_id: string;
  by: string;
  outcome: string;
  delivered: boolean;
  at?: string;
  /** Copied from the prompt, which no longer exists. */
  title?: string;
  kind?: Prompt["kind"];
  /** The reason a person gave for a denial. */
  reason?: string;
  questions?: Question[];
  answers?: Record<string, string | string[]> | null;
}

export interface AskedPart {
  type: "asked";
  prompt_id: string;
}

export interface NoticePart {
  type: "error" | "system" | "context_fallback" | "history_shortened";
  message?: string;
  reason?: string;
  code?: string;
  detail?: string | null;
  at?: string;
}

export type Part = TextPart | ToolPart | PlanPart | ImagePart | ResolvedPart | AskedPart | NoticePart;

export interface Queued {
  message_id: string;
  text: string;
  agent?: string | null;
  attachments?: Attachment[];
  queued_at?: string;
  /** It interrupts the turn, so it goes before the others. */
  first?: boolean;
}

export interface Agent {
  name: string;
  driver: string;
  command: string[];
  state: "ready" | "missing" | "needs_login" | "too_old" | "broken";
  reason: string | null;
  version: string | null;
  capabilities: { [key: string]: Json };
  models: Session["models"];
  modes: Session["modes"];
}

export interface KnownAgent {
  name: string;
  title: string;
  driver: string;
  command: string[];
  install: string;
  login: string;
  homepage: string;
  notes: string;
  offered: boolean;
}

export interface Rule {
  tool: string;
  pattern: string;
  action: "allow" | "ask" | "deny";
}

export interface Project {
  id: string;
  name: string;
  path: string;
  agent: string | null;
  permissions: Rule[];
  limits: { [key: string]: Json };
  instructions: string | null;
  kickoff: string | null;
  history_scope: string;
  /** Where its sessions work: in its directory, or each in its own worktree and branch. */
  workspace?: Workspace;
  active_session_id: string | null;
}

/** One event of a session. `type` determines its fields. */
export interface Event {
  seq: number;
  first_seq?: number;
  type: string;
  at: string;
  session_id: string;
  turn: number | null;
  // The type-specific fields are read where the event is folded.
  [field: string]: any; // eslint-disable-line
}

export interface TranscriptTurn extends TurnInfo {
  rewound?: boolean;
  message: Message | null;
  parts: Part[];
}
