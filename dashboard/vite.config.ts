// How the dashboard is built: relative addresses, so that it works under any mount; nothing inlined, so that the
// strictest content security policy holds; each text file once more compressed, for the server to send as it is.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const api = process.env.REDRIVE_URL ?? "http://127.0.0.1:7373";

function compressed(): Plugin {
  let folder = "";
  return {
    name: "compressed",
    apply: "build",
    configResolved: (config) => {
      folder = join(config.root, config.build.outDir);
      if (config.build.outDir.startsWith("/")) folder = config.build.outDir;
    },
    closeBundle: () => {
      for (const name of readdirSync(join(folder, "assets"))) {
        if (!/\.(js|css)$/.test(name)) continue;
        const path = join(folder, "assets", name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [react(), tailwindcss(), compressed()],
  build: { assetsInlineLimit: 0, modulePreload: { polyfill: false }, reportCompressedSize: false },
  server: { proxy: { "/api": { target: api, changeOrigin: true } } },
});
