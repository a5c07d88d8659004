// What every test has: matchers for the DOM, English, no settings of an earlier test, and a page taken down afterwards.
import "@testing-library/jest-dom/vitest";
import { cleanup } from "@testing-library/react";
import { afterEach, beforeEach, vi } from "vitest";
import { choose } from "../settings";
import { toasts } from "../toasts";

// The DOM of the tests has no top layer: a dialog that is shown is simply open.
HTMLDialogElement.prototype.showModal = function showModal() {
  this.open = true;
};
HTMLDialogElement.prototype.close = function close() {
  this.open = false;
  this.dispatchEvent(new Event("close"));
};
Element.prototype.scrollIntoView = () => {};

beforeEach(() => {
  localStorage.clear();
  choose({ theme: "system", language: "en" });
  history.replaceState(null, "", "/");
});

afterEach(() => {
  cleanup();
  toasts.clear();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});
