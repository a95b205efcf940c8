// Where the page begins: sign in by a link if there is one, then show the app. Below: everything.

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
// A link that is opened where the page is already shown only changes what follows the #.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#login=")) location.reload();
});
void signInByLink().then((done) => {
  // What could not be loaded is said where it would stand; anything else that is caught is a mistake of the page.
  const onCaughtError = (error: unknown) => (error instanceof NotLoaded || error instanceof Outdated ? console.warn(error.message) : console.error(error));
  createRoot(document.getElementById("page")!, { onCaughtError }).render(
    <Boundary>
      <App trouble={typeof done === "string" ? done : ""} />
    </Boundary>,
  );
});
