// Writes the types of a summary and of a comparison from their schemas: types/*.d.ts.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { compile } from "json-schema-to-typescript";

/** Schemas, by the name of the file with their types. */
const SCHEMAS = { summary: "plimsoll-summary-1", comparison: "plimsoll-diff-1" };

/** A description beside a reference would make a type of its own: Path, Path1, Path2. */
const withoutSiblings = (_key, value) => (value?.$ref ? { $ref: value.$ref } : value);

const target = new URL("types/", import.meta.url);
await mkdir(target, { recursive: true });
await Promise.all(Object.entries(SCHEMAS).map(async ([name, schema]) => {
  const file = new URL(`../../schema/${schema}.schema.json`, import.meta.url);
  const types = await compile(JSON.parse(await readFile(file, "utf8"), withoutSiblings), name, {
    additionalProperties: false,
    ignoreMinAndMaxItems: true,
  });
  await writeFile(new URL(`${name}.d.ts`, target), types);
}));
