// This browser's storage: drafts, unsent messages, the theme, small preferences. Above: views. Below: localStorage. If
// it is full or blocked, nothing is stored and nothing breaks.

export function kept(key: string): string | null {
  try {
    return localStorage.getItem("perdure." + key);
  } catch {
    return null;
  }
}

/** Store a value. Returns whether it worked. */
export function keep(key: string, value: string | null): boolean {
  try {
    if (value === null || value === "") localStorage.removeItem("perdure." + key);
    else localStorage.setItem("perdure." + key, value);
    return true;
  } catch {
    // Full or blocked.
    return false;
  }
}

/** All keys with this prefix. */
export function keptKeys(prefix: string): string[] {
  try {
    const all = Array.from({ length: localStorage.length }, (_, index) => localStorage.key(index) ?? "");
    return all.filter((key) => key.startsWith("perdure." + prefix)).map((key) => key.slice("perdure.".length));
  } catch {
    return [];
  }
}

/** Listen for changes made by other tabs. A null value means the key was removed. */
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
