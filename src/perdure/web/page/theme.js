// Before anything is drawn: the theme that this browser keeps, so that a dark page does not flash. The page itself looks
// after it from then on (state/kept.ts).
try {
  const theme = localStorage.getItem("perdure.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Forbidden: the system's theme.
}
