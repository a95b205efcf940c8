// Notifications where only a service worker may show them, which is so on phones. It knows nothing, keeps nothing and
// answers no requests: no view is inside of its scope, this folder. The page (shell/telling.ts) shows and takes away; here
// is what happens when one is pressed, as by then there may be no page.
addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data));
});

async function show(path) {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  // The description of the API and files are of the same server, but not the page, and would not listen.
  const tab = windows.find((one) => !/^\/(api|page)\//.test(new URL(one.url).pathname));
  if (!tab) return clients.openWindow(path);
  tab.postMessage({ path });
  return tab.focus();
}
