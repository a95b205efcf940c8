// Apply the saved theme before the first paint, so a dark page does not flash. From then on the page manages the theme
// (state/kept.ts).
try {
  const theme = localStorage.getItem("perdure.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: use the system theme.
}
