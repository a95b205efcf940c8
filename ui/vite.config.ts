// How the page is built: one entry, a shared worker, and chunks that are loaded when first needed. Names are fixed, so
// that a new build replaces the old files; the server sends validators, so a browser never keeps an old one.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import tailwind from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

/** What the bundle was made from. The project's tests compute the same, and so notice a bundle that is out of date. */
function sources(folder: string, inside = ""): string[] {
  return readdirSync(join(folder, inside), { withFileTypes: true })
    .flatMap((entry) => {
      const path = inside ? `${inside}/${entry.name}` : entry.name;
      if (path === "node_modules" || path === "test") return [];
      return entry.isDirectory() ? sources(folder, path) : [path];
    })
    .sort();
}

function digest(): string {
  const hash = createHash("sha256");
  for (const path of sources(import.meta.dirname).sort()) {
    hash.update(path + "\0").update(readFileSync(join(import.meta.dirname, path))).update("\0");
  }
  return hash.digest("hex");
}

const build = digest();

export default defineConfig({
  plugins: [
    react(),
    tailwind(),
    {
      name: "digest",
      generateBundle() {
        this.emitFile({ type: "asset", fileName: "digest.txt", source: build + "\n" });
      },
    },
  ],
  // A worker of an older page must not serve a newer one.
  define: { __BUILD__: JSON.stringify(build.slice(0, 12)) },
  base: "/page/",
  publicDir: "public",
  worker: { format: "es", rollupOptions: { output: { entryFileNames: "[name].js" } } },
  build: {
    outDir: "../src/perdure/web/page",
    emptyOutDir: true,
    assetsDir: "",
    assetsInlineLimit: 0,
    sourcemap: false,
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        chunkFileNames: "[name].js",
        assetFileNames: "[name][extname]",
      },
    },
  },
  // Wide: on a machine with much to do, loading the modules under test takes longer than any test.
  test: { environment: "node", include: ["test/**/*.test.ts"], testTimeout: 60_000, hookTimeout: 60_000 },
} as Parameters<typeof defineConfig>[0]);
