// Pictures of the page of a job for the documentation: node test/screenshots.mjs PAGE DIRECTORY.
import { join, resolve } from "node:path";
import { browser, opened, to, workspace } from "./pages.mjs";

const [page, directory] = process.argv.slice(2).map((path) => resolve(path));
const space = await workspace();
try {
  const context = await browser(space.directory);
  const { page: shown } = await opened(context, page);
  await shown.setViewportSize({ width: 1440, height: 820 });
  const shoot = (name) => shown.screenshot({ path: join(directory, name) });
  await shoot("page-verdict.png");
  await to(shown, "#timeline?loss=0");
  await shown.waitForSelector("canvas.timeline");
  await shown.waitForTimeout(200);
  await shoot("page-timeline.png");
  await context.close();
} finally {
  await space.close();
}
