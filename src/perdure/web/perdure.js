// Signs this browser in by a one-time link, and shows what runs.
"use strict";

const status = document.getElementById("status");
const list = document.getElementById("sessions");

async function signIn() {
  const code = new URLSearchParams(location.hash.slice(1)).get("login");
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("/api/login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code }),
  });
  if (!answer.ok) status.textContent = (await answer.json()).error;
}

async function showSessions() {
  const answer = await fetch("/api/sessions?limit=20");
  if (answer.status === 401) {
    status.textContent = "The server is running. Sign in with the link that `perdure login` prints.";
    return;
  }
  const { sessions } = await answer.json();
  status.textContent = sessions.length ? "The newest sessions:" : "The server is running. There are no sessions yet.";
  for (const session of sessions) {
    const row = document.createElement("li");
    const about = document.createElement("small");
    row.textContent = (session.title || session.id) + " ";
    about.textContent = `${session.agent}, ${session.state}, ${session.turn_count} turns`;
    row.append(about);
    list.append(row);
  }
}

signIn().then(showSessions);
