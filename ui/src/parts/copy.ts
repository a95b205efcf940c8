// Copying text. Above: buttons and menus. Below: the browser's clipboard API. Pages on plain http don't have it, so
// fall back to copying a selection. If that fails too, show a message.

import { say } from "../shell/toast";

export async function copyText(text: string): Promise<boolean> {
  const done = (await byClipboard(text)) || bySelection(text);
  if (!done) say("The browser blocked copying. Select the text and copy it yourself.", true);
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
  // Add it next to the focused element: an open dialog allows no selection outside itself.
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
