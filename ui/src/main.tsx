// Where the page begins: sign in by a link if there is one, then show the app. Below: everything.

import { createRoot } from "react-dom/client";
import "./page.css";
import { App } from "./shell/app";
import { listenToKeys } from "./shell/commands";
import { startTelling } from "./shell/telling";
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
  createRoot(document.getElementById("page")!).render(<App trouble={typeof done === "string" ? done : ""} />);
});
