// Entry point: sign in with a login link if the address has one, then show the app. Below: everything.

import { createRoot } from "react-dom/client";
import "./page.css";
import { App } from "./shell/app";
import { Boundary } from "./shell/boundary";
import { listenToKeys } from "./shell/commands";
import { startTelling } from "./shell/telling";
import { NotLoaded, Outdated } from "./shell/version";
import { applyTheme } from "./state/kept";
import { signInByLink } from "./views/signin";

applyTheme();
listenToKeys();
startTelling();
// Opening a login link in a tab that already shows the page changes only the hash, so reload.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#login=")) location.reload();
});
void signInByLink().then((done) => {
  // The boundary already shows views that failed to load. Anything else caught here is a bug in the page.
  const onCaughtError = (error: unknown) => (error instanceof NotLoaded || error instanceof Outdated ? console.warn(error.message) : console.error(error));
  createRoot(document.getElementById("page")!, { onCaughtError }).render(
    <Boundary>
      <App trouble={typeof done === "string" ? done : ""} />
    </Boundary>,
  );
});
