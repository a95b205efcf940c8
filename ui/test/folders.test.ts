import { describe, expect, it } from "vitest";
import { optionsOf, pathOfTyped } from "../src/views/folders/options";
import type { Directories } from "../src/wire/changes";

const known: Directories = {
  path: "/home/ada",
  parent: "/home",
  entries: [
    { name: "code", path: "/home/ada/code", repository: false },
    { name: "site", path: "/home/ada/site", repository: true },
  ],
  truncated: false,
  recent: [
    { path: "/home/ada/site", last_active_at: "2026-01-01T00:00:00Z", sessions: 3, branch: "main", dirty: 2, repository: true },
    { path: "/srv/garden", last_active_at: "2026-01-01T00:00:00Z", sessions: null, branch: null, dirty: null, repository: null },
  ],
  projects: [{ id: "shop", name: "The Shop", path: "/srv/shop", branch: "trunk", dirty: 0, repository: true }],
};
const completed: Directories = { ...known, path: "/srv", parent: "/", entries: [{ name: "garden", path: "/srv/garden", repository: null }, { name: "games", path: "/srv/games", repository: false }], recent: [], projects: [] };
const shown = (typed: string, done: Directories | null = null) => optionsOf(typed, known, done).map((one) => `${one.group}: ${one.name}`);

describe("the options of a folder field", () => {
  it("are projects, recent folders and the home folder's, each path once", () => {
    expect(shown("")).toEqual(["Projects: The Shop", "Recent: /home/ada/site", "Recent: /srv/garden", "Folders: /home/ada/code"]);
  });

  it("are filtered by a part of the name or path", () => {
    expect(shown("SHOP")).toEqual(["Projects: The Shop"]);
    expect(shown("gard")).toEqual(["Recent: /srv/garden"]);
    expect(shown("nothing")).toEqual([]);
  });

  it("complete a path", () => {
    expect(shown("/srv/g", completed)).toEqual(["Recent: /srv/garden", "Folders: /srv/games"]);
    expect(shown("/srv/shop", { ...completed, entries: [{ name: "shop", path: "/srv/shop", repository: true }] })).toEqual(["Projects: The Shop"]);
    expect(shown("/srv/shop/", { ...completed, entries: [{ name: "src", path: "/srv/shop/src", repository: false }] })).toEqual(["Folders: /srv/shop/src"]);
  });

  it("never show a number that is not known", () => {
    expect(optionsOf("gard", known, null)[0]).toMatchObject({ sessions: null, dirty: null, branch: null });
  });
});

describe("a typed path", () => {
  it("loses the slash at its end, and names the home folder", () => {
    expect(pathOfTyped(" /srv/site// ", null)).toBe("/srv/site");
    expect(pathOfTyped("/", null)).toBe("/");
    expect(pathOfTyped("~", "/home/ada")).toBe("/home/ada");
    expect(pathOfTyped("~/x/", "/home/ada")).toBe("/home/ada/x");
    expect(pathOfTyped("~/x", null)).toBe("~/x");
    expect(pathOfTyped("~", "/")).toBe("/");
    expect(pathOfTyped("~ada", "/home/ada")).toBe("~ada");
    expect(pathOfTyped("", "/home/ada")).toBe("");
  });
});
