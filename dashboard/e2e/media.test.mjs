// The media library of examples/ in its dashboard: its sources fail and recover as they are told, and the page follows.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch, openPage, startMediaLibrary, until } from "./support.mjs";

const MATRIX = "The.Matrix.1999.1080p.BluRay.x264.mkv";
const METROPOLIS = "Metropolis (1927).mp4";

describe("the media library", () => {
  let browser;
  let library;
  let page;
  before(async () => {
    browser = await launch();
    library = await startMediaLibrary();
    page = await openPage(browser, { locale: "zh-TW" });
    await page.goto(library.dashboard);
    await page.getByTestId("live").waitFor();
    // Gone with the page: whoever reloads would lose it.
    await page.evaluate(() => {
      globalThis.isTheSamePage = true;
    });
  });
  after(async () => {
    await browser?.close();
    await library?.end();
  });
  const row = (file) => page.locator("[data-phase]", { hasText: file });
  const toast = (text) => page.locator("[data-tone]", { hasText: text });

  test("a file waits while its sources are down, and is ready without a reload when one recovers", async () => {
    await library.set("down");
    assert.equal((await library.add(MATRIX)).status, "retrying");
    await row(MATRIX).getByText("元數據獲取").waitFor();
    await row(MATRIX)
      .getByText(/嘗試 \d\/4/)
      .waitFor();
    await row(MATRIX)
      .getByText(/上次錯誤：.*503.*closed for repairs/)
      .waitFor();
    await library.set("up");
    await toast("重試成功").waitFor();
    await row(MATRIX).waitFor({ state: "detached" });
    assert.equal((await library.files())[MATRIX].title, "The Matrix");
  });

  test("a file that says when it can be had waits for that, and is fetched at once by hand", async () => {
    await library.set("closed");
    await library.add(METROPOLIS);
    await row(METROPOLIS)
      .getByText(/59:5\d|1:0\d:\d\d/)
      .waitFor();
    await library.set("up");
    await row(METROPOLIS).getByRole("button", { name: "立即重試" }).click();
    await toast("已觸發立即重試").waitFor();
    await until("it is ready", async () => (await library.files())[METROPOLIS].status === "ready");
    await row(METROPOLIS).waitFor({ state: "detached" });
  });

  test("a file that no source can be asked for needs a person, who is told", async () => {
    await library.set("down");
    await library.add("Nosferatu.1922.mkv");
    // After 1, 2, 4 and 8 seconds.
    await toast("重試次數已用盡").waitFor();
    assert.equal((await library.files())["Nosferatu.1922.mkv"].status, "needs_person");
    await page.getByRole("link", { name: "死信" }).first().click();
    await page.getByRole("link", { name: /Nosferatu/ }).waitFor();
    assert.ok(await page.evaluate(() => globalThis.isTheSamePage), "the page was never loaded again");
    assert.deepEqual(page.trouble, []);
  });
});
