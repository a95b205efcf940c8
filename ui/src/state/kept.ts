// What this browser keeps: drafts, messages on their way, the theme, small choices. Above: views. Below: localStorage,
// which may be full or forbidden; then nothing is kept and nothing breaks.

export function kept(key: string): string | null {
  try {
    return localStorage.getItem("perdure." + key);
  } catch {
    return null;
  }
}

export function keep(key: string, value: string | null): void {
  try {
    if (value === null || value === "") localStorage.removeItem("perdure." + key);
    else localStorage.setItem("perdure." + key, value);
  } catch {
    // Full or forbidden.
  }
}

export function keptJson<T>(key: string, fallback: T): T {
  try {
    const text = kept(key);
    return text ? (JSON.parse(text) as T) : fallback;
  } catch {
    return fallback;
  }
}

export function keepJson(key: string, value: unknown): void {
  keep(key, value === null ? null : JSON.stringify(value));
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
