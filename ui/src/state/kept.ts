// What this browser keeps: drafts, messages on their way, the theme, small choices. Above: views. Below: localStorage,
// which may be full or forbidden; then nothing is kept and nothing breaks.

export function kept(key: string): string | null {
  try {
    return localStorage.getItem("perdure." + key);
  } catch {
    return null;
  }
}

/** Whether it is kept now. */
export function keep(key: string, value: string | null): boolean {
  try {
    if (value === null || value === "") localStorage.removeItem("perdure." + key);
    else localStorage.setItem("perdure." + key, value);
    return true;
  } catch {
    // Full or forbidden.
    return false;
  }
}

/** The keys that begin so. */
export function keptKeys(prefix: string): string[] {
  try {
    const all = Array.from({ length: localStorage.length }, (_, index) => localStorage.key(index) ?? "");
    return all.filter((key) => key.startsWith("perdure." + prefix)).map((key) => key.slice("perdure.".length));
  } catch {
    return [];
  }
}

/** Another tab has changed what is kept under this key; null: it is kept no longer. */
export function onKept(listener: (key: string, value: string | null) => void): void {
  if (typeof addEventListener !== "function") return;
  addEventListener("storage", (event) => {
    if (event.key?.startsWith("perdure.")) listener(event.key.slice("perdure.".length), event.newValue);
  });
}

export function keptJson<T>(key: string, fallback: T): T {
  try {
    const text = kept(key);
    return text ? (JSON.parse(text) as T) : fallback;
  } catch {
    return fallback;
  }
}

export function keepJson(key: string, value: unknown): boolean {
  return keep(key, value === null ? null : JSON.stringify(value));
}

export type Theme = "system" | "light" | "dark";

export function theme(): Theme {
  const value = kept("theme");
  return value === "light" || value === "dark" ? value : "system";
}

export function setTheme(value: Theme): void {
  keep("theme", value === "system" ? null : value);
  applyTheme();
}

export function applyTheme(): void {
  const value = theme();
  if (value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
}
