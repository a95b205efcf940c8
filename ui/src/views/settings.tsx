// Settings of this browser and this server: theme, notifications, live server health, signed-in browsers, and a sign-in
// code for phones. Above: the app. Below: the API and the browser's storage.

import { useEffect, useRef, useState } from "react";
import { Button, Link } from "../parts/button";
import { CopyButton } from "../parts/markdown";
import { PageHead } from "../parts/pagehead";
import { attempt, say } from "../shell/toast";
import { setTelling, telling } from "../shell/telling";
import { useSeveralNodes } from "../state/nodes";
import { setTheme, theme, type Theme } from "../state/kept";
import { bytes, count, duration, exact } from "../text/words";
import { get, post, remove } from "../wire/api";
import { setPageKey } from "../wire/ask";

export default function Settings() {
  const several = useSeveralNodes();
  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Settings" about="This browser and this server" />
      <div className="mx-auto max-w-[92ch] space-y-10 p-4 sm:p-6">
        <Look />
        <Health />
        <Browsers />
        <section>
          <h2 className="mb-2 text-base font-semibold">More</h2>
          <ul className="space-y-1 text-sm">
            <li><Link to="/settings/agents" className="text-accent underline underline-offset-2">Agents</Link> and their status</li>
            <li><Link to="/settings/projects" className="text-accent underline underline-offset-2">Projects</Link> with permission rules and limits</li>
            {several && <li><Link to="/nodes" className="text-accent underline underline-offset-2">Nodes</Link>: servers that share these sessions</li>}
            <li><a href="/api/docs" className="text-accent underline underline-offset-2">API documentation</a> of this server</li>
          </ul>
        </section>
      </div>
    </div>
  );
}

function Look() {
  const [chosen, setChosen] = useState(theme());
  const [told, setTold] = useState(telling());
  const choose = (value: Theme) => (setTheme(value), setChosen(value));
  return (
    <section>
      <h2 className="mb-3 text-base font-semibold">This browser</h2>
      <fieldset className="mb-4 flex flex-wrap items-center gap-2">
        <legend className="mb-1 text-xs text-quiet">Theme</legend>
        {(["system", "light", "dark"] as const).map((value) => (
          <label key={value} className={`flex min-h-(--target) cursor-pointer items-center gap-2 rounded-md border px-3 text-sm ${chosen === value ? "border-accent bg-accent-soft" : "border-line"}`}>
            <input type="radio" name="theme" checked={chosen === value} onChange={() => choose(value)} />
            {value === "system" ? "System" : value === "light" ? "Light" : "Dark"}
          </label>
        ))}
      </fieldset>
      <div className="flex flex-wrap items-center gap-3 text-sm">
        <Button icon="bell" disabled={told === "refused" || told === "impossible"} onClick={() => void setTelling(told !== "on").then(setTold)}>{told === "on" ? "Turn notifications off" : "Turn notifications on"}</Button>
        <span className="text-quiet">{told === "refused" ? "The browser blocks notifications from this site. Allow them in its settings." : told === "impossible" ? "Notifications are not available here. They need HTTPS or localhost." : "For finished turns and waiting prompts, while you are not looking at the session."}</span>
      </div>
    </section>
  );
}

interface Vitals {
  version: string;
  started_at: string;
  uptime_s: number;
  at: string;
  slots: number;
  sessions: { attached: number; working: number; waiting: number };
  viewers: number;
  processes: number;
  memory_bytes: number;
  agents_memory_bytes: number;
  events: number;
  disk_free_bytes: number;
  damaged: { kind: string; id: string; session_id: string | null; what: string }[];
}

const LOOK_MS = 2000;
const KEPT = 60;

function Health() {
  const [all, setAll] = useState<Vitals[]>([]);
  useEffect(() => {
    let current = true;
    const look = () => get<Vitals>("/api/server").then((one) => current && setAll((before) => [...before.slice(-KEPT), one]), () => undefined);
    void look();
    const timer = setInterval(() => document.visibilityState === "visible" && void look(), LOOK_MS);
    return () => {
      current = false;
      clearInterval(timer);
    };
  }, []);
  const now = all[all.length - 1];
  const rates = all.slice(1).map((one, index) => Math.max(0, (one.events - all[index]!.events) / Math.max(0.5, (Date.parse(one.at) - Date.parse(all[index]!.at)) / 1000)));
  const rate = rates[rates.length - 1] ?? 0;
  // Show a placeholder until the value is loaded, so that nothing moves.
  const shown = (value: (one: Vitals) => string) => (now ? value(now) : "–");
  return (
    <section>
      <h2 className="mb-1 text-base font-semibold">Server</h2>
      <p className="mb-3 text-sm text-quiet">{now ? <>Perdure {now.version}, <span title={`since ${exact(now.started_at)}`}>up for {duration(now.uptime_s * 1000)}</span></> : "Loading"}</p>
      <dl className="grid grid-cols-2 gap-x-6 gap-y-4 sm:grid-cols-4">
        <Figure name="Running turns" value={shown((one) => `${one.sessions.working}${one.slots ? ` of ${one.slots}` : ""}`)} values={all.map((one) => one.sessions.working)} />
        <Figure name="Waiting for you" value={shown((one) => String(one.sessions.waiting))} values={all.map((one) => one.sessions.waiting)} />
        <Figure name="Events per second" value={shown(() => (rate < 10 ? rate.toFixed(1) : count(Math.round(rate))))} values={rates} />
        <Figure name="Viewers" value={shown((one) => String(one.viewers))} values={all.map((one) => one.viewers)} />
        <Figure name="Server memory" value={shown((one) => bytes(one.memory_bytes))} values={all.map((one) => one.memory_bytes)} />
        <Figure name="Agents' memory" value={shown((one) => bytes(one.agents_memory_bytes))} values={all.map((one) => one.agents_memory_bytes)} />
        <Figure name="Agent processes" value={shown((one) => String(one.processes))} values={all.map((one) => one.processes)} />
        <Figure name="Free disk" value={shown((one) => bytes(one.disk_free_bytes))} values={[]} />
      </dl>
      {now && now.damaged.length > 0 && (
        <div className="mt-4 rounded-md border border-amber-line bg-amber-soft p-3 text-sm">
          <p className="font-semibold text-amber">Damaged and set aside</p>
          <ul className="mt-1 space-y-1">
            {now.damaged.map((one) => <li key={one.kind + one.id} className="break-words">{one.kind} <code>{one.id}</code>: {one.what}</li>)}
          </ul>
          <p className="mt-2">Nothing was deleted. Run <code>perdure doctor --deep</code> on the server to see what to do.</p>
        </div>
      )}
    </section>
  );
}

function Figure({ name, value, values }: { name: string; value: string; values: number[] }) {
  const most = Math.max(1, ...values);
  const points = values.map((one, index) => `${(index / Math.max(1, values.length - 1)) * 100},${24 - (one / most) * 22}`).join(" ");
  return (
    <div>
      <dt className="text-xs text-quiet">{name}</dt>
      <dd className="text-lg tabular-nums">{value}</dd>
      <svg viewBox="0 0 100 24" preserveAspectRatio="none" className="h-6 w-full text-accent" aria-hidden="true">
        {values.some((one) => one !== values[0]) && <polyline points={points} fill="none" stroke="currentColor" strokeWidth="1.5" vectorEffect="non-scaling-stroke" />}
      </svg>
    </div>
  );
}

interface Login {
  id: string;
  until: string;
  this: boolean;
}

function signedOut(): void {
  setPageKey(null);
  location.assign("/");
}

function Browsers() {
  const [logins, setLogins] = useState<Login[]>([]);
  const [link, setLink] = useState("");
  const look = () => get<{ logins: Login[] }>("/api/logins").then((answer) => setLogins(answer.logins), () => undefined);
  useEffect(() => void look(), []);
  const make = async () => {
    const made = await attempt(post<{ path: string }>("/api/login-links"));
    if (made) setLink(location.origin + made.path);
  };
  const local = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  return (
    <section>
      <h2 className="mb-1 text-base font-semibold">Signed-in browsers</h2>
      <p className="mb-3 text-sm text-quiet">Sign in on a phone with a one-time code, valid for ten minutes.</p>
      <Button icon="phone" onClick={() => void make()}>Show code for a phone</Button>
      {link && (
        <div className="mt-4 flex flex-wrap items-start gap-4">
          <QrCode text={link} />
          <div className="min-w-0 flex-1 basis-60 text-sm">
            <p className="flex items-center gap-1 font-mono text-xs break-all">{link} <CopyButton text={link} label="Copy link" /></p>
            {local && <p className="mt-2 text-amber">This address works only on this machine. Put an HTTPS proxy in front of the server (see docs/operations.md), open the page at an address the phone can reach, and show the code again.</p>}
          </div>
        </div>
      )}
      <ul aria-label="Signed-in browsers" className="mt-4 divide-y divide-line text-sm">
        {logins.map((login) => (
          <li key={login.id} className="flex items-center gap-3 py-2">
            <span className="font-mono text-xs">{login.id.slice(0, 8)}</span>
            <span className="flex-1 text-quiet">{login.this && <span className="text-text">This browser · </span>}<span title={exact(login.until)}>signed in until {new Date(login.until).toLocaleDateString(undefined, { dateStyle: "medium" })}</span></span>
            {login.this ? (
              <Button tone="danger" onClick={() => void attempt(post("/api/logout").then(signedOut))}>Sign out</Button>
            ) : (
              <Button onClick={() => void attempt(remove(`/api/logins/${login.id}`).then(() => say("Signed out."))).then(look)}>Sign out</Button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function QrCode({ text }: { text: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    void import("qrcode-generator").then(({ default: qrcode }) => {
      const code = qrcode(0, "M");
      code.addData(text);
      code.make();
      const size = code.getModuleCount();
      const context = canvas.current?.getContext("2d");
      if (!context || !canvas.current) return;
      canvas.current.width = canvas.current.height = (size + 8) * 4;
      context.fillStyle = "#fff";
      context.fillRect(0, 0, canvas.current.width, canvas.current.height);
      context.fillStyle = "#000";
      for (let row = 0; row < size; row++) for (let column = 0; column < size; column++) if (code.isDark(row, column)) context.fillRect((column + 4) * 4, (row + 4) * 4, 4, 4);
    });
  }, [text]);
  return <canvas ref={canvas} role="img" aria-label="Sign-in code for a phone" className="size-44 rounded-md border border-line" />;
}
