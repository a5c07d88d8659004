// The tests beside the components, in a DOM without a browser, with what must be covered.
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [react()],
  test: {
    environment: "happy-dom",
    env: { DEBUG_PRINT_LIMIT: "0" },
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/testing/setup.ts"],
    coverage: {
      provider: "v8",
      include: ["src/**/*.{ts,tsx}"],
      exclude: ["src/**/*.test.{ts,tsx}", "src/testing/**", "src/main.tsx", "src/api/schema.ts"],
      reporter: ["text-summary"],
      thresholds: { lines: 80, statements: 80 },
    },
  },
});
