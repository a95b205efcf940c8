"""The endpoints that the page needs besides those of sessions."""

from perdure.surfaces.http import pages
from perdure.surfaces.http import shapes as sh
from perdure.surfaces.http.endpoint import ABSOLUTE, Endpoint, between

PAGE = [
    Endpoint(
        "GET",
        "/api/server",
        pages.get_vitals,
        "How the server is: sessions, processes, memory, events so far",
        answers={200: sh.Vitals},
    ),
    Endpoint(
        "GET",
        "/api/directory",
        pages.get_directory,
        "How the server sees a directory, so that a client can tell whether both see the same one",
        query={"path": (str, "An absolute path; `/` if left out.", ABSOLUTE)},
        answers={200: sh.Directory},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/api/sessions/{session_id}/files",
        pages.list_files,
        "Files in the session's working directory, to name one in a message",
        query={
            "q": (str, "Letters that the path must hold."),
            "limit": (int, "How many at the most (1 to 200; 20 by default).", between(1, 200)),
        },
        answers={200: sh.Files},
        refusals=("not_found",),
    ),
    Endpoint("GET", "/api/logins", pages.list_logins, "Browsers that are signed in", answers={200: sh.Logins}),
    Endpoint("DELETE", "/api/logins", pages.end_logins, "Sign every browser out", answers={200: sh.LoginsEnded}),
    Endpoint(
        "DELETE",
        "/api/logins/{login_id}",
        pages.end_login,
        "Sign a browser out",
        answers={204: None},
        refusals=("not_found",),
    ),
]
