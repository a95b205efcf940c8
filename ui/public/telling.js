// The service worker for notifications, used where pages can't show them themselves (phones). It has no state and
// handles no requests: its scope is this folder, which contains no view. The page (shell/telling.ts) shows and closes
// notifications. This script handles clicks, because the page may be closed by then.
addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data));
});

async function show(path) {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  // Skip tabs that show the API docs or files: they come from the same server but don't listen for messages.
  const tab = windows.find((one) => !/^\/(api|page)\//.test(new URL(one.url).pathname));
  if (!tab) return clients.openWindow(path);
  tab.postMessage({ path });
  return tab.focus();
}
