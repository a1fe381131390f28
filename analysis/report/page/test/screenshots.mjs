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
  await to(shown, "#contexts?mode=tree");
  await shown.waitForSelector(".rows .row");
  await shown.getByText("Hot path").click();
  await shown.waitForSelector(".details h2");
  await shoot("page-contexts.png");
  await context.close();
} finally {
  await space.close();
}
