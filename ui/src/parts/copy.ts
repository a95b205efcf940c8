// Copying text. Above: buttons and menus. Below: the browser's clipboard, which a page on plain http does not have; there
// the old way by a selection is taken, and where that fails too it is said.

import { say } from "../shell/toast";

export async function copyText(text: string): Promise<boolean> {
  const done = (await byClipboard(text)) || bySelection(text);
  if (!done) say("This browser does not let the page copy. Select the text instead.", true);
  return done;
}

async function byClipboard(text: string): Promise<boolean> {
  try {
    if (!navigator.clipboard) return false;
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function bySelection(text: string): boolean {
  const focused = document.activeElement as HTMLElement | null;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr-only";
  // Beside the focus: an open dialog lets nothing outside of it be selected.
  (focused?.parentElement ?? document.body).append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    area.remove();
    focused?.focus();
  }
}
