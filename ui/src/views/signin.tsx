// Signing in: with the one-time link from `perdure login`, or by pasting that link, its code, or the server's token.
// Above: the app shows it while this browser is not signed in. Below: the API. The page stores a key that is useless
// without the cookie, which no script can read.

import { useState } from "react";
import { Button } from "../parts/button";
import { post, Problem, request, sentence } from "../wire/api";
import { setPageKey } from "../wire/ask";

async function redeem(code: string): Promise<void> {
  setPageKey((await post<{ page_key: string }>("/api/login", { code })).page_key);
}

/** Sign in with the code in the address. Returns true on success, false if there is no code, or the error. */
export async function signInByLink(): Promise<boolean | string> {
  const code = new URLSearchParams(location.hash.slice(1)).get("login");
  if (!code) return false;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await redeem(code);
    return true;
  } catch (error) {
    return sentence(error);
  }
}

async function signIn(given: string): Promise<void> {
  const text = given.trim();
  const code = /#login=([\w-]+)/.exec(text)?.[1];
  if (code) return redeem(code);
  try {
    // Use the server's token to create a link, then redeem the link for a cookie.
    const { path } = await request<{ path: string }>("POST", "/api/login-links", {}, { authorization: `Bearer ${text}` });
    return await redeem(path.split("=")[1]!);
  } catch {
    return redeem(text).catch((error) => {
      throw error instanceof Problem && error.code === "unauthorized" ? new Error("That is neither the server's token nor a valid link. Run perdure login for a new link.") : error;
    });
  }
}

export function SignIn({ trouble, onDone }: { trouble: string; onDone: () => void }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(trouble);
  const [busy, setBusy] = useState(false);
  return (
    <main className="flex h-full items-center justify-center overflow-y-auto p-4">
      <div className="w-full max-w-md">
        <h1 className="mb-1 text-xl font-semibold">Perdure</h1>
        <p className="mb-6 text-quiet">To sign in this browser, run this on the server's machine:</p>
        <pre className="code mb-6 rounded-md border border-line bg-sunken px-3 py-2">perdure login</pre>
        <p className="mb-2 text-quiet">Then open the link it prints, or paste the link or the server's token here.</p>
        <form
          className="flex gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            setBusy(true);
            signIn(text).then(onDone, (problem) => setError(sentence(problem))).finally(() => setBusy(false));
          }}
        >
          <input type="password" autoComplete="current-password" aria-label="Link or token" value={text} onChange={(event) => setText(event.target.value)} className="min-h-9 min-w-0 flex-1 rounded-md border border-strong bg-raised px-2" />
          <Button type="submit" tone="primary" disabled={!text.trim() || busy}>Sign in</Button>
        </form>
        <p role="alert" className="mt-3 min-h-6 text-sm text-red">{error}</p>
      </div>
    </main>
  );
}
